use super::super::messages::{NumaNode, TopologyInfo};
use super::*;

const R: &str = "example.com/r";

/// A resource with devices a0, a1 on the first node, b0, b1 on the second, and one that is ill.
fn book() -> Book {
    let mut resource = Resource::default();
    let said = [("a0", 0), ("a1", 0), ("b0", 1), ("b1", 1), ("ill", 1)].map(|(id, node)| Said {
        id: id.to_owned(),
        health: if id == "ill" { "Unhealthy" } else { HEALTHY }.to_owned(),
        topology: Some(TopologyInfo { nodes: vec![NumaNode { id: node }] }),
    });
    assert!(resource.take_over(said.to_vec()) && !resource.take_over(said.to_vec()));
    Book { resources: [(R.to_owned(), resource)].into(), ..Book::default() }
}

fn want(pod: &str, container: &str, count: usize) -> Want {
    let devices = [(R.to_owned(), count), ("other.example/x".to_owned(), 1)].into();
    Want { pod: pod.to_owned(), container: container.to_owned(), devices, ..Want::default() }
}

fn near(node: u32) -> Hint {
    Hint { nodes: Some(Mask::one(node)), preferred: true }
}

fn take(book: &mut Book, want: &Want, passing: &[String], hint: Hint) -> Result<String, DeviceError> {
    let count = want.devices[R];
    let Some(choice) = book.choice(want, (R, count), passing, hint, false)? else {
        return Ok("same".to_owned());
    };
    let devices = completed(&choice, &BTreeSet::new());
    let text = devices.iter().cloned().collect::<Vec<_>>().join(",");
    book.give(want, R, devices, ContainerAllocateResponse::default());
    Ok(text)
}

#[test]
fn near_devices_are_given_first_and_nobody_elses() {
    let mut book = book();
    assert_eq!(book.amounts()[R], (5, 4));
    assert_eq!(book.known(&want("p", "c", 1)).count(), 1, "of others' resources nothing is known");
    let hints = book.hints(&want("p", "c", 2), &[], &[0, 1])[R].clone().unwrap();
    let both = Hint { nodes: Some(Mask::of([0, 1])), preferred: false };
    assert_eq!(hints, [near(0), near(1), both]);
    assert_eq!(take(&mut book, &want("p", "c", 1), &[], near(1)).unwrap(), "b0");
    assert_eq!(take(&mut book, &want("p", "c", 1), &[], near(1)).unwrap(), "same");
    assert_eq!(take(&mut book, &want("q", "c", 2), &[], near(1)).unwrap(), "a0,b1");
    let few = take(&mut book, &want("r", "c", 2), &[], near(1)).unwrap_err();
    assert_eq!(
        few.to_string(),
        "requested number of devices unavailable for example.com/r. Requested: 2, Available: 1"
    );
    assert_eq!(book.users(R), ["p", "q"]);
    book.given.remove("q");
    assert_eq!(take(&mut book, &want("r", "c", 2), &[], near(1)).unwrap(), "a0,b1");
}

#[test]
fn devices_of_init_containers_pass_on() {
    let mut book = book();
    assert_eq!(take(&mut book, &want("p", "init", 3), &[], Hint::ANYWHERE).unwrap(), "a0,a1,b0");
    let passing = ["init".to_owned()];
    assert_eq!(take(&mut book, &want("p", "c", 2), &passing, Hint::ANYWHERE).unwrap(), "a0,a1");
    assert!(take(&mut book, &want("p", "d", 2), &[], Hint::ANYWHERE).is_err());
}

#[test]
fn who_does_not_run_needs_devices_that_are_well() {
    let mut book = book();
    take(&mut book, &want("p", "c", 1), &[], near(0)).unwrap();
    book.resources.get_mut(R).unwrap().lose();
    assert_eq!(book.amounts()[R], (5, 0));
    let again = |book: &Book, runs| book.choice(&want("p", "c", 1), (R, 1), &[], near(0), runs);
    assert_eq!(again(&book, true), Ok(None));
    assert_eq!(again(&book, false), Err(DeviceError::Unregistered(R.to_owned())));
    let ill = Said { id: "a0".to_owned(), health: "Unhealthy".to_owned(), topology: None };
    book.resources.get_mut(R).unwrap().take_over(vec![ill]);
    assert_eq!(again(&book, false), Err(DeviceError::Lost(R.to_owned())));
    let fresh = book.choice(&want("q", "c", 1), (R, 1), &[], near(0), false);
    assert_eq!(fresh, Err(DeviceError::Unhealthy(R.to_owned())));
}

#[test]
fn what_a_plugin_prefers_counts_as_far_as_it_may() {
    let set = |ids: &[&str]| -> BTreeSet<String> { ids.iter().map(|id| (*id).to_owned()).collect() };
    let choice = Choice { must: set(&["m"]), from: vec![set(&["a", "b", "c"]), set(&["x"])], count: 3 };
    assert_eq!(completed(&choice, &set(&["c", "x", "foreign"])), set(&["m", "a", "c"]));
    let choice = Choice { count: 5, ..choice };
    assert_eq!(completed(&choice, &set(&[])), set(&["m", "a", "b", "c", "x"]));
}
