//! How large each ReplicaSet of a Deployment shall be next. Nothing here does I/O.

use super::shape::{SetView, Shape};

/// A set's new size, by name.
pub type Resize = (String, i32);

fn total(sets: &[SetView]) -> i32 {
    sets.iter().map(|s| s.replicas).sum()
}

fn oldest_first(sets: &[SetView]) -> Vec<&SetView> {
    let mut sorted: Vec<&SetView> = sets.iter().collect();
    sorted.sort_by_key(|s| (s.created, s.name.clone()));
    sorted
}

/// The size of the newest set: as large as surge allows. `all` includes it, if it exists.
pub fn new_set_size(shape: &Shape, all: &[SetView], new_size: i32) -> i32 {
    if shape.rolling.is_none() || new_size >= shape.replicas {
        return shape.replicas;
    }
    let room = shape.max_replicas() - total(all);
    if room <= 0 {
        return new_size;
    }
    new_size + room.min(shape.replicas - new_size)
}

/// A rolling update's next step for the old sets: first the pods that are not available anyway, then as many
/// available ones as `maxUnavailable` lets go.
pub fn shrink_old(shape: &Shape, new: &SetView, old: &[SetView]) -> Vec<Resize> {
    let all = total(old) + new.replicas;
    let budget = all - shape.min_available() - (new.replicas - new.available);
    if total(old) == 0 || budget <= 0 {
        return Vec::new();
    }
    let mut sizes: Vec<SetView> = oldest_first(old).into_iter().cloned().collect();
    let mut cleaned = 0;
    for set in &mut sizes {
        let unhealthy = (set.replicas - set.available).max(0).min(budget - cleaned);
        set.replicas -= unhealthy;
        cleaned += unhealthy;
    }
    let available: i32 = new.available + sizes.iter().map(|s| s.available).sum::<i32>();
    let mut spare = (available - shape.min_available()).max(0);
    for set in &mut sizes {
        let down = set.replicas.min(spare);
        set.replicas -= down;
        spare -= down;
    }
    changed(old, sizes.into_iter().map(|s| (s.name, s.replicas)))
}

fn changed(before: &[SetView], after: impl Iterator<Item = Resize>) -> Vec<Resize> {
    after.filter(|(name, size)| before.iter().any(|s| &s.name == name && s.replicas != *size)).collect()
}

/// Whether the Deployment was only resized since the sets were last written.
pub fn is_scaling(shape: &Shape, all: &[SetView]) -> bool {
    all.iter().filter(|s| s.replicas > 0).any(|s| s.desired.is_some_and(|d| d != shape.replicas))
}

/// New sizes after the Deployment was resized, or while it is paused: the only active set takes it all; a finished
/// rollout drops the old ones; one in the middle grows and shrinks its sets in proportion. `live_total` is the
/// Deployment's status.replicas, for sets that carry no annotation.
pub fn scale(shape: &Shape, new: Option<&SetView>, old: &[SetView], live_total: i32) -> Vec<Resize> {
    let all: Vec<SetView> = old.iter().chain(new).cloned().collect();
    let active: Vec<SetView> = all.iter().filter(|s| s.replicas > 0).cloned().collect();
    let newest_old = || oldest_first(old).last().copied();
    let only = match active.as_slice() {
        [] => new.or_else(newest_old),
        [one] => Some(one),
        _ => None,
    };
    if let Some(one) = only {
        return if one.replicas == shape.replicas {
            vec![]
        } else {
            vec![(one.name.clone(), shape.replicas)]
        };
    }
    if new.is_some_and(|n| {
        n.replicas == shape.replicas && n.desired == Some(shape.replicas) && n.available == shape.replicas
    }) {
        return old.iter().filter(|s| s.replicas > 0).map(|s| (s.name.clone(), 0)).collect();
    }
    if shape.rolling.is_none() {
        return Vec::new();
    }
    changed(&all, proportional(shape, active, live_total).into_iter())
}

fn proportional(shape: &Shape, mut active: Vec<SetView>, live_total: i32) -> Vec<Resize> {
    let allowed = if shape.replicas > 0 { shape.max_replicas() } else { 0 };
    let to_add = allowed - total(&active);
    // The largest first; of equal ones the newer gains first and the older loses first.
    active.sort_by_key(|s| (-s.replicas, if to_add > 0 { -s.created } else { s.created }, s.name.clone()));
    let mut added = 0;
    let mut sizes: Vec<Resize> = Vec::new();
    for set in &active {
        let share = share(shape, set, to_add, added, live_total);
        added += share;
        sizes.push((set.name.clone(), set.replicas + share));
    }
    if let Some(first) = sizes.first_mut() {
        first.1 = (first.1 + to_add - added).max(0);
    }
    sizes.into_iter().map(|(name, size)| (name, size.max(0))).collect()
}

fn share(shape: &Shape, set: &SetView, to_add: i32, added: i32, live_total: i32) -> i32 {
    if to_add == 0 || to_add == added || set.replicas == 0 {
        return 0;
    }
    let fraction = fraction(shape, set, live_total);
    let left = to_add - added;
    if to_add > 0 { fraction.min(left) } else { fraction.max(left) }
}

/// What the set would gain or lose if it kept its share of the Deployment, rounded half away from zero.
fn fraction(shape: &Shape, set: &SetView, live_total: i32) -> i32 {
    if shape.replicas == 0 {
        return -set.replicas;
    }
    let before = i64::from(set.max.filter(|m| *m > 0).unwrap_or(live_total));
    if before == 0 {
        return 0;
    }
    let product = i64::from(set.replicas) * i64::from(shape.max_replicas());
    let rounded = (2 * product + before) / (2 * before);
    i32::try_from(rounded).unwrap_or(i32::MAX) - set.replicas
}

#[cfg(test)]
mod tests {
    use super::super::shape::Rolling;
    use super::*;

    fn shape(replicas: i32, max_surge: i32, max_unavailable: i32) -> Shape {
        Shape { replicas, rolling: Some(Rolling { max_surge, max_unavailable }) }
    }

    fn set(name: &str, replicas: i32, available: i32, created: i64) -> SetView {
        SetView { name: name.into(), replicas, available, created, desired: None, max: None }
    }

    fn with_max(mut set: SetView, desired: i32, max: i32) -> SetView {
        set.desired = Some(desired);
        set.max = Some(max);
        set
    }

    #[test]
    fn the_new_set_grows_into_the_surge() {
        let cases = [
            // replicas, surge, old, new, expected
            (3, 1, 3, 0, 1),
            (3, 1, 3, 1, 1),
            (3, 1, 2, 1, 2),
            (3, 0, 3, 0, 0),
            (3, 5, 3, 0, 3),
            (3, 1, 0, 5, 3),
            (10, 3, 8, 5, 5),
        ];
        for (replicas, surge, old, new, expected) in cases {
            let all = [set("old", old, old, 1), set("new", new, 0, 2)];
            assert_eq!(
                new_set_size(&shape(replicas, surge, 1), &all, new),
                expected,
                "{replicas} {old} {new}"
            );
        }
        let recreate = Shape { replicas: 4, rolling: None };
        assert_eq!(new_set_size(&recreate, &[], 0), 4);
    }

    #[test]
    fn old_sets_shrink_unhealthy_first_and_keep_enough_available() {
        let cases: [(Shape, SetView, Vec<SetView>, Vec<Resize>); 5] = [
            (shape(3, 1, 0), set("n", 1, 0, 9), vec![set("o", 3, 3, 1)], vec![]),
            (shape(3, 1, 0), set("n", 1, 1, 9), vec![set("o", 3, 3, 1)], vec![("o".into(), 2)]),
            (shape(10, 0, 2), set("n", 0, 0, 9), vec![set("o", 10, 10, 1)], vec![("o".into(), 8)]),
            (
                shape(10, 3, 2),
                set("n", 5, 5, 9),
                vec![set("p", 4, 4, 2), set("o", 4, 0, 1)],
                vec![("o".into(), 0), ("p".into(), 3)],
            ),
            (shape(2, 1, 0), set("n", 2, 2, 9), vec![set("o", 1, 1, 1)], vec![("o".into(), 0)]),
        ];
        for (shape, new, old, expected) in cases {
            assert_eq!(shrink_old(&shape, &new, &old), expected, "{new:?} {old:?}");
        }
    }

    #[test]
    fn a_resize_in_the_middle_of_a_rollout_is_shared_in_proportion() {
        // The example of the documentation: 10 replicas, surge 3, unavailable 2, scaled to 15 with 8 old and 5 new.
        let old = with_max(set("old", 8, 8, 1), 10, 13);
        let new = with_max(set("new", 5, 0, 2), 10, 13);
        let sizes = scale(&shape(15, 3, 2), Some(&new), std::slice::from_ref(&old), 13);
        assert_eq!(sizes, [("old".to_owned(), 11), ("new".to_owned(), 7)]);
        assert!(is_scaling(&shape(15, 3, 2), &[old.clone(), new.clone()]));
        assert!(!is_scaling(&shape(10, 3, 2), &[old, new]));
    }

    #[test]
    fn the_only_active_set_takes_the_whole_size() {
        let old = set("old", 0, 0, 1);
        assert_eq!(
            scale(&shape(5, 1, 1), Some(&set("new", 3, 3, 2)), std::slice::from_ref(&old), 3),
            [("new".into(), 5)]
        );
        assert_eq!(scale(&shape(5, 1, 1), None, &[old, set("older", 0, 0, 0)], 0), [("old".into(), 5)]);
        let done = with_max(set("new", 5, 5, 2), 5, 6);
        assert_eq!(scale(&shape(5, 1, 1), Some(&done), &[set("old", 1, 1, 1)], 6), [("old".into(), 0)]);
    }
}
