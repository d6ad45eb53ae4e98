//! Nodes as JSON, within what aliases may cost.

use super::go;
use super::key::Keys;
use super::scalar::{Resolved, is_merge, resolve};
use super::tree::{Node, What};
use super::{MAX_ALIASED_BYTES, MAX_ALIASED_NODES, MAX_DEPTH, YamlError};
use crate::decode::MAX_PROBLEMS;
use crate::float;
use serde_json::{Map, Number, Value};

pub(super) struct Reader<'n, 't> {
    nodes: &'n [Node<'t>],
    /// Nodes seen, and those of them that aliases repeat.
    seen: usize,
    aliased: usize,
    aliased_bytes: usize,
    /// Aliases that are being replaced, each by its node.
    replacing: Vec<usize>,
    depth: usize,
    pub repeated: Vec<String>,
}

impl<'n, 't> Reader<'n, 't> {
    pub fn new(nodes: &'n [Node<'t>]) -> Self {
        Self {
            nodes,
            seen: 0,
            aliased: 0,
            aliased_bytes: 0,
            replacing: Vec::new(),
            depth: 0,
            repeated: Vec::new(),
        }
    }

    #[cfg(test)]
    pub fn seen(&self) -> usize {
        self.seen
    }

    pub fn value(&mut self, at: usize) -> Result<Value, YamlError> {
        self.count(at)?;
        match &self.nodes[at].what {
            What::Scalar(scalar) => json(resolve(scalar)?),
            What::Alias { of, name } => self.replace(at, *of, name, Self::value),
            What::Sequence => self.deeper(|reader| reader.sequence(at)),
            What::Mapping => self.deeper(|reader| {
                let mut map = Keys::default();
                reader.mapping(at, &mut map)?;
                Ok(Value::Object(map.into_map()))
            }),
        }
    }

    /// As upstream counts: what aliases make must not be nearly all of a document of more than 1,000 nodes, and the less the
    /// larger it is. Beyond that they may cost no more than a whole body does.
    fn count(&mut self, at: usize) -> Result<(), YamlError> {
        self.seen += 1;
        if self.replacing.is_empty() {
            return Ok(());
        }
        self.aliased += 1;
        if let What::Scalar(scalar) = &self.nodes[at].what {
            self.aliased_bytes += scalar.text.len();
        }
        let (aliased, seen) = (self.aliased as f64, self.seen as f64);
        let is_bomb = self.aliased > 100 && self.seen > 1_000 && aliased / seen > allowed_share(seen);
        if is_bomb || self.aliased > MAX_ALIASED_NODES || self.aliased_bytes > MAX_ALIASED_BYTES {
            return Err(YamlError::Aliases);
        }
        Ok(())
    }

    fn deeper<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, YamlError>) -> Result<T, YamlError> {
        if self.depth >= MAX_DEPTH {
            return Err(YamlError::Depth(MAX_DEPTH));
        }
        self.depth += 1;
        let done = work(self);
        self.depth -= 1;
        done
    }

    fn replace<T>(
        &mut self,
        at: usize,
        of: usize,
        name: &str,
        work: impl FnOnce(&mut Self, usize) -> Result<T, YamlError>,
    ) -> Result<T, YamlError> {
        if self.replacing.contains(&at) {
            return Err(YamlError::ContainsItself(name.to_owned()));
        }
        self.replacing.push(at);
        let done = self.deeper(|reader| work(reader, of));
        self.replacing.pop();
        done
    }

    fn sequence(&mut self, at: usize) -> Result<Value, YamlError> {
        let mut list = Vec::new();
        let mut item = at + 1;
        while item < self.nodes[at].end {
            list.push(self.value(item)?);
            item = self.nodes[item].end;
        }
        Ok(Value::Array(list))
    }

    fn mapping(&mut self, at: usize, map: &mut Keys) -> Result<(), YamlError> {
        let mut key = at + 1;
        while key < self.nodes[at].end {
            let value = self.nodes[key].end;
            match &self.nodes[key].what {
                What::Scalar(scalar) if is_merge(scalar) => self.merge(value, map)?,
                _ => self.entry(key, value, map)?,
            }
            key = self.nodes.get(value).map_or(usize::MAX, |node| node.end);
        }
        Ok(())
    }

    fn entry(&mut self, key: usize, value: usize, map: &mut Keys) -> Result<(), YamlError> {
        let line = self.nodes[value].line;
        let key = self.key(key)?;
        let value = self.value(value)?;
        if let Some(key) = map.set(key, value)?
            && self.repeated.len() < MAX_PROBLEMS
        {
            self.repeated.push(format!("line {line}: key {key} already set in map"));
        }
        Ok(())
    }

    fn key(&mut self, at: usize) -> Result<Resolved, YamlError> {
        let node = &self.nodes[at];
        match &node.what {
            What::Scalar(scalar) => {
                self.count(at)?;
                resolve(scalar)
            }
            What::Alias { of, name } => {
                self.count(at)?;
                self.replace(at, *of, name, Self::key)
            }
            What::Sequence | What::Mapping => Err(YamlError::Key(go::syntax(&self.value(at)?))),
        }
    }

    /// The keys of one map or of several, of which the first counts most. They replace what is there already, and are replaced
    /// by what follows.
    fn merge(&mut self, at: usize, map: &mut Keys) -> Result<(), YamlError> {
        if !matches!(self.nodes[at].what, What::Sequence) {
            return self.merge_one(at, map);
        }
        let mut items = Vec::new();
        let mut item = at + 1;
        while item < self.nodes[at].end {
            items.push(item);
            item = self.nodes[item].end;
        }
        items.into_iter().rev().try_for_each(|item| self.merge_one(item, map))
    }

    fn merge_one(&mut self, at: usize, map: &mut Keys) -> Result<(), YamlError> {
        self.count(at)?;
        match &self.nodes[at].what {
            What::Mapping => self.deeper(|reader| reader.mapping(at, map)),
            What::Alias { of, name } if matches!(self.nodes[*of].what, What::Mapping) => {
                self.replace(at, *of, name, |reader, of| {
                    reader.count(of)?;
                    reader.mapping(of, map)
                })
            }
            _ => Err(YamlError::Merge),
        }
    }
}

/// Falls from 99 % of 400,000 nodes to 10 % of 4,000,000.
fn allowed_share(seen: f64) -> f64 {
    const SMALL: f64 = 400_000.0;
    const LARGE: f64 = 4_000_000.0;
    0.99 - 0.89 * ((seen.clamp(SMALL, LARGE) - SMALL) / (LARGE - SMALL))
}

fn json(resolved: Resolved) -> Result<Value, YamlError> {
    Ok(match resolved {
        Resolved::Null => Value::Null,
        Resolved::Bool(value) => value.into(),
        Resolved::Int(value) => value.into(),
        Resolved::Unsigned(value) => value.into(),
        Resolved::Text(text) => text.into(),
        Resolved::Float(value) => number(value)?.into(),
    })
}

fn number(value: f64) -> Result<Number, YamlError> {
    let text = match value {
        _ if value.is_nan() => "NaN",
        _ if value > 0.0 => "+Inf",
        _ => "-Inf",
    };
    float::number(value).ok_or(YamlError::NotFinite(text))
}

/// Of a document that was JSON, whose numbers are then those of YAML.
pub(super) fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(given) if given.is_f64() => {
            if let Some(whole) = given.as_f64().and_then(float::number) {
                *given = whole;
            }
        }
        Value::Array(list) => list.iter_mut().for_each(whole_numbers),
        Value::Object(map) => Map::values_mut(map).for_each(whole_numbers),
        _ => {}
    }
}
