//! The way to nodes' volumes, as a port: by the API server to the kubelets' own ports, where every step is authorized.

use crate::local_path::incoming::in_pieces;
use crate::local_path::transfer::{Contents, Said, TransferError, Wanted, Written};
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use std::io;

pub type ByteStream = BoxStream<'static, io::Result<Bytes>>;

/// Reads and makes volumes on nodes.
#[async_trait]
pub trait Carrier: Send + Sync {
    async fn look(&self, node: &str, directory: &str) -> Result<Contents, TransferError>;
    async fn read(&self, node: &str, directory: &str) -> Result<ByteStream, TransferError>;
    async fn write(&self, node: &str, wanted: &Wanted, stream: ByteStream) -> Result<Written, TransferError>;
}

/// By `nodes/<node>/proxy`, for which the client needs the rights.
pub struct NodeProxy(pub kube::Client);

/// More than an answer has, in bytes: names of ten files, and an error.
const LONGEST_ANSWER: usize = 64 << 10;
/// What kubelets say of paths that they do not serve.
const UNKNOWN_PAGE: &str = "404 page not found";

impl NodeProxy {
    async fn ask(
        &self,
        (method, node): (Method, &str),
        path: &str,
        (key, value): (&str, &str),
        body: Body,
    ) -> Result<Response<Body>, TransferError> {
        let value = utf8_percent_encode(value, NON_ALPHANUMERIC);
        let uri = format!("/api/v1/nodes/{node}/proxy/localPath/{path}?{key}={value}");
        let again = |error: &dyn std::fmt::Display| TransferError::Again(format!("node {node}: {error}"));
        let request = Request::builder().method(method).uri(uri).body(body).map_err(|e| again(&e))?;
        let answer = self.0.send(request).await.map_err(|e| again(&coracle_api::error::chain(&e)))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let text = text(answer).await.unwrap_or_default();
        if text.trim() == UNKNOWN_PAGE {
            let why = format!("node {node} does not know how to move volumes: it is of an earlier version");
            return Err(TransferError::Refused(why));
        }
        let known: Option<kube::core::Status> = serde_json::from_str(&text).ok();
        let said = known.map_or(text, |status| status.message);
        Err(TransferError::Again(format!("node {node} answered {status}: {}", said.trim())))
    }
}

async fn text(answer: Response<Body>) -> Result<String, TransferError> {
    let body = http_body_util::Limited::new(answer.into_body(), LONGEST_ANSWER);
    let collected = body.collect().await.map_err(|error| TransferError::Again(error.to_string()))?;
    Ok(String::from_utf8_lossy(&collected.to_bytes()).into_owned())
}

async fn said<T: DeserializeOwned>(answer: Response<Body>) -> Result<T, TransferError> {
    let text = text(answer).await?;
    match serde_json::from_str(&text) {
        Ok(Said::Done(done)) => Ok(done),
        Ok(Said::Refused(why)) => Err(TransferError::Refused(why)),
        Err(error) => Err(TransferError::Again(format!("the node's answer cannot be read: {error}"))),
    }
}

#[async_trait]
impl Carrier for NodeProxy {
    async fn look(&self, node: &str, directory: &str) -> Result<Contents, TransferError> {
        let of = ("directory", directory);
        said(self.ask((Method::GET, node), "contents", of, Body::empty()).await?).await
    }

    async fn read(&self, node: &str, directory: &str) -> Result<ByteStream, TransferError> {
        let of = ("directory", directory);
        let answer = self.ask((Method::POST, node), "contents", of, Body::empty()).await?;
        Ok(answer.into_body().into_data_stream().map_err(io::Error::other).boxed())
    }

    async fn write(&self, node: &str, wanted: &Wanted, stream: ByteStream) -> Result<Written, TransferError> {
        let again = |error: &dyn std::fmt::Display| TransferError::Again(error.to_string());
        let wanted = serde_json::to_string(wanted).map_err(|error| again(&error))?;
        let begin = self.ask((Method::POST, node), "volume", ("volume", &wanted), Body::empty());
        let attempt: String = said(begin.await?).await?;
        let (mut pieces, mut number) = (std::pin::pin!(in_pieces(stream)), 0_u64);
        while let Some(piece) = pieces.next().await {
            let body = Body::from(piece.map_err(|error| again(&error))?);
            let of = format!("{number}/{attempt}");
            said::<()>(self.ask((Method::PUT, node), "volume", ("piece", &of), body).await?).await?;
            number += 1;
        }
        said(self.ask((Method::POST, node), "volume", ("end", &attempt), Body::empty()).await?).await
    }
}
