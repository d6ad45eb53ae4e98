//! Objects in other shapes than their own: rows of a Table, and metadata alone.

use super::list_body::ListHead;
use crate::wire::shape::{Include, metadata_only};
use coracle_api::Object;
use coracle_resources::catalogue::StrategyRef;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Makes tables of one resource.
#[derive(Clone)]
pub struct Tables {
    pub strategy: StrategyRef,
    pub include: Include,
    pub now: Timestamp,
    /// `meta.k8s.io/v1`, or v1beta1 for who asks for it.
    pub version: &'static str,
}

impl Tables {
    /// `with_columns` is false in watch events after the first.
    pub fn table<'a>(
        &self,
        objects: impl IntoIterator<Item = &'a Object>,
        metadata: Value,
        with_columns: bool,
    ) -> Value {
        let rows: Vec<Value> = objects.into_iter().map(|object| self.row(object)).collect();
        let columns = if with_columns { self.strategy.column_definitions() } else { Value::Null };
        json!({ "kind": "Table", "apiVersion": self.version, "metadata": metadata, "columnDefinitions": columns, "rows": rows })
    }

    /// The table of one object, as a get answers it.
    pub fn single(&self, object: &Object) -> Value {
        let version = object["metadata"]["resourceVersion"].clone();
        self.table([object], json!({ "resourceVersion": version }), true)
    }

    fn row(&self, object: &Object) -> Value {
        let mut row = json!({ "cells": self.strategy.row(object, self.now) });
        let conditions = self.strategy.row_conditions(object);
        if !conditions.is_empty() {
            row["conditions"] = conditions.into();
        }
        row["object"] = match self.include {
            Include::Nothing => Value::Null,
            Include::Metadata => metadata_only(object, self.version),
            Include::Object => object.clone(),
        };
        row
    }
}

pub fn metadata_list<'a>(
    objects: impl IntoIterator<Item = &'a Object>,
    head: &ListHead<'_>,
    version: &str,
) -> Value {
    let items: Vec<Value> = objects.into_iter().map(|object| metadata_only(object, version)).collect();
    json!({ "kind": "PartialObjectMetadataList", "apiVersion": version, "metadata": head.metadata(), "items": items })
}
