use super::*;
use parking_lot::Mutex;
use std::collections::HashMap;
use tempfile::TempDir;

/// A file system of directories without files, by their inodes.
#[derive(Default)]
struct Kernel {
    projects: Mutex<HashMap<u64, Project>>,
    limits: Mutex<HashMap<u32, u64>>,
    marks: Mutex<HashMap<u64, u32>>,
    /// Files that others have in a project.
    others: Mutex<HashMap<u32, u64>>,
    /// Somebody else takes the same number in the same moment, once.
    races: Mutex<bool>,
    /// So many changes are made yet; then none is, as by who was killed.
    changes_left: Mutex<Option<u32>>,
}

impl Kernel {
    fn change(&self) -> io::Result<()> {
        match self.changes_left.lock().as_mut() {
            Some(0) => Err(io::ErrorKind::Interrupted.into()),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

fn inode(dir: &Dir) -> io::Result<u64> {
    Ok(dir.itself()?.inode())
}

impl Projects for Kernel {
    fn enforces(&self, _: &Dir) -> bool {
        true
    }
    fn project(&self, dir: &Dir) -> io::Result<Project> {
        Ok(self.projects.lock().get(&inode(dir)?).copied().unwrap_or_default())
    }
    fn set_project(&self, dir: &Dir, project: Project) -> io::Result<()> {
        self.change()?;
        if std::mem::take(&mut *self.races.lock()) {
            self.others.lock().insert(project.id, 1);
        }
        self.projects.lock().insert(inode(dir)?, project);
        Ok(())
    }
    fn quota(&self, _: &Dir, id: u32) -> io::Result<Quota> {
        let own = self.projects.lock().values().filter(|project| project.id == id).count();
        let others = self.others.lock().get(&id).copied().unwrap_or_default();
        let limit_bytes = self.limits.lock().get(&id).copied().unwrap_or_default();
        Ok(Quota { limit_bytes, used_bytes: 0, inodes: u64::try_from(own).unwrap() + others })
    }
    fn set_limit(&self, _: &Dir, id: u32, bytes: u64) -> io::Result<()> {
        self.change()?;
        self.limits.lock().insert(id, bytes);
        Ok(())
    }
    fn mark(&self, dir: &Dir) -> io::Result<Option<u32>> {
        Ok(self.marks.lock().get(&inode(dir)?).copied())
    }
    fn set_mark(&self, dir: &Dir, id: u32) -> io::Result<()> {
        self.change()?;
        self.marks.lock().insert(inode(dir)?, id);
        Ok(())
    }
}

fn volume(place: &TempDir, name: &str) -> Dir {
    Dir::open(place.path()).unwrap().make_dir(name, 0o777).unwrap()
}

#[test]
fn each_directory_gets_a_number_that_nobody_has() {
    let (place, kernel) = (TempDir::new().unwrap(), Kernel::default());
    let (one, two) = (volume(&place, "one"), volume(&place, "two"));
    // The number that the first would have is that of somebody's files.
    let taken = numbers(inode(&one).unwrap()).next().unwrap();
    kernel.others.lock().insert(taken, 3);
    hold(&kernel, &one, 5000).unwrap();
    hold(&kernel, &two, 7000).unwrap();
    let of = |dir: &Dir| kernel.project(dir).unwrap();
    assert!(of(&one).inherits && of(&one).id >= FIRST && of(&one).id != taken);
    assert_ne!(of(&one).id, of(&two).id);
    assert_eq!(held(&kernel, &place.path().join("two")).unwrap().limit_bytes, 7000);
    assert_eq!(
        kernel.limits.lock().get(&taken).copied().unwrap_or_default(),
        0,
        "its limit is not ours to set"
    );
}

#[test]
fn two_that_find_the_same_number_free_both_go_on() {
    let (place, kernel) = (TempDir::new().unwrap(), Kernel::default());
    let one = volume(&place, "one");
    *kernel.races.lock() = true;
    hold(&kernel, &one, 5000).unwrap();
    let mut numbers = numbers(inode(&one).unwrap());
    let (first, second) = (numbers.next().unwrap(), numbers.next().unwrap());
    assert_eq!(kernel.project(&one).unwrap(), Project { id: second, inherits: true });
    assert_eq!(kernel.others.lock().get(&first), Some(&1));
}

#[test]
fn a_directory_that_is_held_keeps_its_number_and_gets_it_back() {
    let (place, kernel) = (TempDir::new().unwrap(), Kernel::default());
    let one = volume(&place, "one");
    hold(&kernel, &one, 5000).unwrap();
    let project = kernel.project(&one).unwrap();
    // Its container gives it away, to one whose limit is larger.
    kernel.set_project(&one, Project { id: 7, inherits: false }).unwrap();
    hold(&kernel, &one, 9000).unwrap();
    assert_eq!(kernel.project(&one).unwrap(), project);
    assert_eq!(kernel.quota(&one, project.id).unwrap().limit_bytes, 9000);
    assert_eq!(kernel.limits.lock().get(&7), None);
}

#[test]
fn who_was_killed_at_any_step_goes_on_and_no_number_is_anothers() {
    for steps in 0.. {
        let (place, kernel) = (TempDir::new().unwrap(), Kernel::default());
        let (one, other) = (volume(&place, "one"), volume(&place, "other"));
        *kernel.changes_left.lock() = Some(steps);
        let killed = hold(&kernel, &one, 5000).is_err();
        *kernel.changes_left.lock() = None;
        // Somebody else comes between, and looks first where the first has looked.
        let taken = numbers(inode(&one).unwrap()).next().unwrap();
        if kernel.quota(&other, taken).unwrap().inodes == 0 {
            kernel.set_limit(&other, taken, 7000).unwrap();
            kernel.set_project(&other, Project { id: taken, inherits: true }).unwrap();
            kernel.set_mark(&other, taken).unwrap();
        }
        hold(&kernel, &one, 5000).unwrap();
        hold(&kernel, &other, 7000).unwrap();
        let ids = [&one, &other].map(|dir| kernel.project(dir).unwrap().id);
        assert_ne!(ids[0], ids[1], "after {steps} steps");
        for (id, bytes) in ids.into_iter().zip([5000, 7000]) {
            let has = kernel.quota(&one, id).unwrap();
            assert_eq!((has.limit_bytes, has.inodes), (bytes, 1), "after {steps} steps");
        }
        if !killed {
            assert_eq!(steps, 3, "limit, project, mark");
            return;
        }
    }
}

#[test]
fn the_limit_goes_with_the_directory() {
    let (place, kernel) = (TempDir::new().unwrap(), Kernel::default());
    let path = place.path().join("one");
    hold(&kernel, &volume(&place, "one"), 5000).unwrap();
    let absent = place.path().join("absent");
    let ids = marks(&kernel, [path.as_path(), absent.as_path(), place.path()]);
    assert_eq!(ids.len(), 1, "only one of them is held");
    std::fs::remove_dir(&path).unwrap();
    release(&kernel, place.path(), &ids);
    assert_eq!(kernel.limits.lock().get(&ids[0]), Some(&0));
    assert_eq!(held(&kernel, &path), None);
}

#[test]
fn sizes_hold_where_the_file_system_says_so_and_nobody_elses_quota_holds_already() {
    let (place, kernel) = (TempDir::new().unwrap(), Kernel::default());
    let later = place.path().join("not/there/yet");
    assert!(can_hold(&kernel, &later));
    assert!(!can_hold(&NoProjects, &later));
    kernel.set_project(&Dir::open(place.path()).unwrap(), Project { id: 9, inherits: true }).unwrap();
    assert!(!can_hold(&kernel, &later));
}

#[test]
fn numbers_are_ours_and_each_once() {
    for inode in [0, 12, u64::from(u32::MAX), u64::MAX] {
        let some: Vec<u32> = numbers(inode).take(100).collect();
        let once: std::collections::BTreeSet<&u32> = some.iter().collect();
        assert_eq!(once.len(), 100, "{inode}");
        assert!(some.iter().all(|id| (FIRST..FIRST + COUNT).contains(id)), "{inode}");
    }
}
