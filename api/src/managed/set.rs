//! Sets of field paths, as trees.

use super::element::Element;
use crate::schema::{Kind, TypeRef};
use std::cmp::Ordering;

/// A set of paths. A path may be a member without its children and the other way round. Elements borrow their texts
/// from the values or managedFields that they were made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set<'a> {
    /// In the order of their elements; none is without both membership and children.
    nodes: Vec<Node<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node<'a> {
    pub element: Element<'a>,
    pub member: bool,
    pub children: Set<'a>,
}

impl Node<'_> {
    fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

impl<'a> Set<'a> {
    pub fn new() -> Self {
        Self::default()
    }

    /// Of paths given as field names.
    pub fn of_fields(paths: &[&[&'a str]]) -> Self {
        let mut set = Self::new();
        for path in paths {
            set.insert(path.iter().map(|name| Element::field(name)));
        }
        set
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.nodes.iter().map(|node| usize::from(node.member) + node.children.len()).sum()
    }

    pub(super) fn nodes(&self) -> &[Node<'a>] {
        &self.nodes
    }

    /// Makes `path` a member; the empty path is none.
    pub fn insert(&mut self, path: impl IntoIterator<Item = Element<'a>>) {
        let mut path = path.into_iter();
        let Some(first) = path.next() else { return };
        let mut node = self.node_mut(first);
        for element in path {
            node = node.children.node_mut(element);
        }
        node.member = true;
    }

    fn node_mut(&mut self, element: Element<'a>) -> &mut Node<'a> {
        let at = match self.nodes.binary_search_by(|node| node.element.cmp(&element)) {
            Ok(at) => at,
            Err(at) => {
                self.nodes.insert(at, Node { element, member: false, children: Set::new() });
                at
            }
        };
        &mut self.nodes[at]
    }

    /// Adds a whole subtree. Cheap if elements come in their order; a second one for the same element is united with
    /// the first.
    pub(super) fn push(&mut self, element: Element<'a>, member: bool, children: Set<'a>) {
        if !member && children.is_empty() {
            return;
        }
        if self.nodes.last().is_none_or(|last| last.element < element) {
            self.nodes.push(Node { element, member, children });
            return;
        }
        let node = self.node_mut(element);
        node.member |= member;
        node.children = std::mem::take(&mut node.children).union(children);
    }

    pub(super) fn find(&self, element: &Element<'_>) -> Option<&Node<'a>> {
        let at = self.nodes.binary_search_by(|node| node.element.cmp(element)).ok()?;
        Some(&self.nodes[at])
    }

    pub fn has(&self, path: &[Element<'_>]) -> bool {
        match path {
            [] => false,
            [last] => self.find(last).is_some_and(|node| node.member),
            [first, rest @ ..] => self.find(first).is_some_and(|node| node.children.has(rest)),
        }
    }

    pub fn union(self, other: Set<'a>) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let mut nodes = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        let mut left = self.nodes.into_iter().peekable();
        let mut right = other.nodes.into_iter().peekable();
        loop {
            let order = match (left.peek(), right.peek()) {
                (Some(l), Some(r)) => l.element.cmp(&r.element),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return Self { nodes },
            };
            match order {
                Ordering::Less => nodes.extend(left.next()),
                Ordering::Greater => nodes.extend(right.next()),
                Ordering::Equal => {
                    if let (Some(l), Some(r)) = (left.next(), right.next()) {
                        let (member, children) = (l.member || r.member, l.children.union(r.children));
                        nodes.push(Node { element: l.element, member, children });
                    }
                }
            }
        }
    }

    /// Whether every member is a member of `other` too.
    pub(super) fn is_within(&self, other: &Set<'_>) -> bool {
        self.nodes.iter().all(|node| match other.find(&node.element) {
            Some(found) => (!node.member || found.member) && node.children.is_within(&found.children),
            None => false,
        })
    }

    /// Members that are not members of `other`; what stands below a member of `other` stays.
    #[must_use]
    pub fn difference(mut self, other: &Set<'_>) -> Self {
        if other.is_empty() {
            return self;
        }
        self.nodes.retain_mut(|node| {
            if let Some(found) = other.find(&node.element) {
                node.member &= !found.member;
                node.children = std::mem::take(&mut node.children).difference(&found.children);
            }
            !node.is_empty()
        });
        self
    }

    /// As [`difference`](Self::difference), and with everything below the members of `other` gone too.
    #[must_use]
    pub fn recursive_difference(mut self, other: &Set<'_>) -> Self {
        if other.is_empty() {
            return self;
        }
        self.nodes.retain_mut(|node| match other.find(&node.element) {
            Some(found) if found.member => false,
            Some(found) => {
                node.children = std::mem::take(&mut node.children).recursive_difference(&found.children);
                !node.is_empty()
            }
            None => true,
        });
        self
    }

    /// Members that are members of `other` too.
    #[must_use]
    pub fn intersection(&self, other: &Set<'_>) -> Self {
        let mut nodes = Vec::new();
        for node in &self.nodes {
            let Some(found) = other.find(&node.element) else { continue };
            let member = node.member && found.member;
            let children = node.children.intersection(&found.children);
            if member || !children.is_empty() {
                nodes.push(Node { element: node.element.clone(), member, children });
            }
        }
        Self { nodes }
    }

    /// Members without members below them.
    #[must_use]
    pub fn leaves(self) -> Self {
        let nodes = self.nodes.into_iter().map(|node| {
            let member = node.member && node.children.is_empty();
            Node { element: node.element, member, children: node.children.leaves() }
        });
        Self { nodes: nodes.collect() }
    }

    /// Makes members of the struct fields that have members below them, so that taking the set away from an object
    /// leaves no empty structs.
    #[must_use]
    pub(super) fn with_named_fields(mut self, ty: Option<TypeRef<'_>>) -> Self {
        for node in &mut self.nodes {
            let (named, below) = descend(ty, &node.element);
            node.member |= named && !node.children.is_empty();
            node.children = std::mem::take(&mut node.children).with_named_fields(below);
        }
        self
    }

    /// Calls `visit` with the path of every member, in order.
    pub fn for_each<'s>(&'s self, visit: &mut impl FnMut(&[&'s Element<'a>])) {
        self.walk(&mut Vec::new(), visit);
    }

    fn walk<'s>(&'s self, path: &mut Vec<&'s Element<'a>>, visit: &mut impl FnMut(&[&'s Element<'a>])) {
        for node in &self.nodes {
            path.push(&node.element);
            if node.member {
                visit(path);
            }
            node.children.walk(path, visit);
            path.pop();
        }
    }

    pub fn into_owned(self) -> Set<'static> {
        let nodes = self.nodes.into_iter().map(|node| Node {
            element: node.element.into_owned(),
            member: node.member,
            children: node.children.into_owned(),
        });
        Set { nodes: nodes.collect() }
    }
}

/// Whether the step is a field that the schema names, and the type behind it.
fn descend<'t>(ty: Option<TypeRef<'t>>, element: &Element<'_>) -> (bool, Option<TypeRef<'t>>) {
    let Some(ty) = ty else { return (false, None) };
    match (ty.kind(), element.tag) {
        (Kind::Struct, super::Tag::Field) => {
            let field = ty.field(&element.text);
            (field.is_some(), field.map(|f| f.ty()))
        }
        (Kind::Map, super::Tag::Field) | (Kind::List, super::Tag::Key) => (false, ty.element()),
        _ => (false, None),
    }
}
