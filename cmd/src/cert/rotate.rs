//! `coracle cert rotate-ca`: asks the running server, which has the authorities in memory, too.

use crate::args::RotateCaArgs;
use crate::door::{KnockError, Request, Step, knock};
use coracle_api::error::chain;
use std::io::Read;

pub fn run(args: &RotateCaArgs) -> Result<(), String> {
    let answer = knock(&args.data_dir, Request::RotateCa(step(args)?));
    let mut answer = answer.map_err(|error| match error {
        KnockError::NobodyThere(_) => format!(
            "{}: no server runs here; authorities are replaced by one that does",
            args.data_dir.display()
        ),
        error => chain(&error),
    })?;
    let mut text = String::new();
    answer.read_to_string(&mut text).map_err(|error| error.to_string())?;
    println!("{text}");
    Ok(())
}

fn step(args: &RotateCaArgs) -> Result<Step, String> {
    let anyway = args.force;
    match (args.issue, args.finish, args.abandon, args.status) {
        (true, ..) => Ok(Step::Issue { anyway }),
        (_, true, ..) => Ok(Step::Finish { anyway }),
        _ if anyway => Err("--force goes with --issue or --finish".to_owned()),
        (_, _, true, _) => Ok(Step::Abandon),
        (_, _, _, true) => Ok(Step::Show),
        _ => Ok(Step::Begin),
    }
}
