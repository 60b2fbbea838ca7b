//! Makes a failing run small: fewer candidates, fewer elections, less trouble, a shorter time.

use crate::plan::{Class, Options};
use crate::world::{Run, run};

/// The smallest failing run that was found, with its transcript. `options` must fail.
///
/// Any failure counts, not only the same one: what is left is what people have to read.
pub fn shrink(options: &Options) -> (Options, Run) {
    let mut best = options.clone();
    loop {
        let smaller = smaller(&best).into_iter().find(|less| run(less).violation.is_some());
        match smaller {
            Some(less) => best = less,
            None => break,
        }
    }
    best.record = true;
    let run = run(&best);
    (best, run)
}

/// Runs that are a little smaller, the boldest first. Each step shrinks for good, so that the
/// loop above ends.
fn smaller(options: &Options) -> Vec<Options> {
    let mut all = Vec::new();
    for length_pct in [options.length_pct / 4, options.length_pct / 2, options.length_pct * 3 / 4] {
        if length_pct > 0 && length_pct < options.length_pct {
            all.push(Options { length_pct, ..options.clone() });
        }
    }
    for elections_max in [1, 2, 4] {
        if elections_max < options.elections_max {
            all.push(Options { elections_max, ..options.clone() });
        }
    }
    for nodes_max in [1, 2, 3, 4] {
        if nodes_max < options.nodes_max {
            all.push(Options { nodes_max, ..options.clone() });
        }
    }
    for class in Class::ALL {
        if !options.is_off(class) {
            all.push(options.clone().without(class));
        }
    }
    all
}
