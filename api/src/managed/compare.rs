//! What has changed between two values of one schema.

use super::element::Element;
use super::lists::{Items, Place, Shape};
use super::set::Set;
use crate::schema::TypeRef;
use serde_json::{Map, Value};
use std::cmp::Ordering;

/// The three ways in which a field can differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison<'v> {
    pub added: Set<'v>,
    pub modified: Set<'v>,
    pub removed: Set<'v>,
}

impl Comparison<'_> {
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Without what stands at or below the members of `ignored`.
    #[must_use]
    pub fn without(self, ignored: &Set<'_>) -> Self {
        Self {
            added: self.added.recursive_difference(ignored),
            modified: self.modified.recursive_difference(ignored),
            removed: self.removed.recursive_difference(ignored),
        }
    }
}

/// What happened to the path itself. More than one is true only for items that were or became duplicates.
#[derive(Clone, Copy, Default)]
struct Here {
    added: bool,
    modified: bool,
    removed: bool,
}

const ADDED: Here = Here { added: true, modified: false, removed: false };
const MODIFIED: Here = Here { added: false, modified: true, removed: false };
const REMOVED: Here = Here { added: false, modified: false, removed: true };

/// Compares two objects of the type `ty`.
pub fn compare<'v>(old: &'v Value, new: &'v Value, ty: TypeRef<'_>) -> Comparison<'v> {
    pair(Some(old), Some(new), Place::root(ty)).1
}

type Change<'v> = (Here, Comparison<'v>);

fn pair<'v>(old: Option<&'v Value>, new: Option<&'v Value>, place: Place<'_>) -> Change<'v> {
    let (before, after) = (old.map(|v| place.shape(v)), new.map(|v| place.shape(v)));
    match (before, after) {
        (Some(before), Some(after)) if before != after && !is_null(old) && !is_null(new) => {
            // Only where the schema allows anything: the one goes, the other comes.
            let (_, below_old) = shaped(old, None, place, before);
            let (_, below_new) = shaped(None, new, place, after);
            let below = Comparison { removed: below_old.removed, ..below_new };
            (MODIFIED, below)
        }
        (_, Some(shape)) if !is_null(new) => shaped(old, new, place, shape),
        (Some(shape), _) => shaped(old, new, place, shape),
        (None, Some(shape)) => shaped(old, new, place, shape),
        (None, None) => Change::default(),
    }
}

fn is_null(value: Option<&Value>) -> bool {
    value.is_some_and(Value::is_null)
}

fn shaped<'v>(old: Option<&'v Value>, new: Option<&'v Value>, place: Place<'_>, shape: Shape) -> Change<'v> {
    let is_leaf = match shape {
        Shape::Scalar | Shape::Atomic => true,
        Shape::Granular | Shape::Set | Shape::Keyed => is_hollow(old) && is_hollow(new),
    };
    if is_leaf {
        return (leaf(old, new), Comparison::default());
    }
    let below = match shape {
        Shape::Granular => maps(object(old), object(new), place),
        _ => lists(array(old), array(new), place, shape),
    };
    let here = match (old, new) {
        (None, _) => ADDED,
        (_, None) => REMOVED,
        _ => Here::default(),
    };
    (here, below)
}

/// Absent, null, or empty.
fn is_hollow(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        _ => true,
    }
}

fn leaf(old: Option<&Value>, new: Option<&Value>) -> Here {
    match (old, new) {
        (None, _) => ADDED,
        (_, None) => REMOVED,
        (Some(old), Some(new)) if old == new => Here::default(),
        _ => MODIFIED,
    }
}

fn object(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

fn array(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn record<'v>(into: &mut Comparison<'v>, element: &Element<'v>, change: Change<'v>) {
    let (here, below) = change;
    for (set, member, children) in [
        (&mut into.added, here.added, below.added),
        (&mut into.modified, here.modified, below.modified),
        (&mut into.removed, here.removed, below.removed),
    ] {
        if member || !children.is_empty() {
            set.push(element.clone(), member, children);
        }
    }
}

/// Both maps at once, in the order of their keys.
fn maps<'v>(
    old: Option<&'v Map<String, Value>>,
    new: Option<&'v Map<String, Value>>,
    place: Place<'_>,
) -> Comparison<'v> {
    let mut found = Comparison::default();
    let mut left = old.into_iter().flatten().peekable();
    let mut right = new.into_iter().flatten().peekable();
    loop {
        let order = match (left.peek(), right.peek()) {
            (Some((l, _)), Some((r, _))) => l.cmp(r),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return found,
        };
        let before = if order == Ordering::Greater { None } else { left.next() };
        let after = if order == Ordering::Less { None } else { right.next() };
        let Some((key, _)) = before.or(after) else { return found };
        // Most writes leave most of an object as it was; to see that is ten times quicker than to follow its schema.
        if let (Some((_, before)), Some((_, after))) = (before, after)
            && before == after
        {
            continue;
        }
        let Some(child) = place.child(key) else { continue };
        let (mut old_value, mut new_value) = (before.map(|(_, v)| v), after.map(|(_, v)| v));
        // Inside a struct that is itself new or gone everything is.
        if old.is_some() && new.is_some() && (old_value.is_none() || new_value.is_none()) {
            let absent = stand_in(place, child);
            old_value = old_value.or(absent);
            new_value = new_value.or(absent);
        }
        record(&mut found, &Element::field(key), pair(old_value, new_value, child));
    }
}

/// What upstream's types have in place of an absent field that they never leave out.
fn stand_in(place: Place<'_>, child: Place<'_>) -> Option<&'static Value> {
    let field = child.field.filter(|_| place.ty.is_built_in())?;
    field.is_kept().then(|| field.zero())
}

/// The items of two lists by what identifies them. Order does not matter.
fn lists<'v>(old: &'v [Value], new: &'v [Value], place: Place<'_>, shape: Shape) -> Comparison<'v> {
    let mut found = Comparison::default();
    let Some(element) = place.element() else { return found };
    let items = Items::of(place, shape);
    let (left, right) = (indexed(old, &items), indexed(new, &items));
    let (mut left, mut right) = (left.as_slice(), right.as_slice());
    while let Some(identity) = match (left.first(), right.first()) {
        (Some((l, _)), Some((r, _))) => Some(l.min(r)),
        (l, r) => l.or(r).map(|(identity, _)| identity),
    } {
        let identity = identity.clone();
        let (before, after) = (take_same(&mut left, &identity), take_same(&mut right, &identity));
        record(&mut found, &identity, same_items(before, after, element));
    }
    found
}

type Indexed<'v> = (Element<'v>, &'v Value);

fn indexed<'v>(list: &'v [Value], items: &Items<'_>) -> Vec<Indexed<'v>> {
    let identified = list.iter().filter_map(|item| items.identify(item).ok().map(|id| (id, item)));
    let mut found: Vec<Indexed<'v>> = identified.collect();
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    found
}

fn take_same<'s, 'v>(list: &mut &'s [Indexed<'v>], identity: &Element<'_>) -> &'s [Indexed<'v>] {
    let count = list.iter().take_while(|(id, _)| id == identity).count();
    let (same, rest) = list.split_at(count);
    *list = rest;
    same
}

/// The items of one identity. Duplicates are compared as a whole.
fn same_items<'v>(old: &[Indexed<'v>], new: &[Indexed<'v>], element: Place<'_>) -> Change<'v> {
    let first = |list: &[Indexed<'v>]| list.first().map(|(_, item)| *item);
    match (old.len(), new.len()) {
        (1, 1) if first(old) == first(new) => Change::default(),
        (0 | 1, 0 | 1) => pair(first(old), first(new), element),
        (2.., 2..) => {
            let equal = old.iter().map(|(_, v)| *v).eq(new.iter().map(|(_, v)| *v));
            (if equal { Here::default() } else { MODIFIED }, Comparison::default())
        }
        (2.., _) => {
            let (mut here, below) = pair(None, first(new), element);
            here.removed = true;
            (here, below)
        }
        _ => {
            let (mut here, below) = pair(first(old), None, element);
            here.added = true;
            (here, below)
        }
    }
}
