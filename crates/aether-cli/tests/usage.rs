//! Bad usage ends with exit code 2 and says what is wrong; everything else is documented.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, dead_code)]

mod common;

use common::aether;

#[test]
fn bad_usage_exits_with_2_and_names_what_is_wrong() {
    for (arguments, part) in [
        ("dance", "dance"),
        ("--fast", "--fast"),
        ("devices --yaml", "--yaml"),
        ("train --devices cpu:0", "cpu:COUNT"),
        ("train --devices tpu:4", "cpu:COUNT"),
        ("train --epochs 0", "--epochs"),
        ("train --batch 0", "--batch"),
        ("train --seed -1", "-1"),
        ("train --data", "--data"),
        ("bench", "<OP>"),
        ("bench juggle", "all_to_all"),
        ("bench all --driver tcp", "nccl"),
        ("bench all --mode fibers", "processes"),
        ("bench all --ranks 0", "1 to 1024"),
        ("bench all -b 4MB", "K, M or G"),
        ("bench all -e 17179869184G", "64 bits"),
        ("bench all -b 0", "zero bytes"),
        ("bench all -b 2K -e 1K", "larger than -e 1024"),
        ("bench all -f 1", "--stepfactor"),
        ("bench all -n 0", "--iters"),
        ("bench all -d f33", "bf16"),
        ("bench all -o xor", "prod"),
        ("bench broadcast -r 4", "0 to 3"),
        ("bench all_reduce -d bool", "never reduced"),
        ("bench send_recv --in-place", "in place"),
        ("bench all --format xml", "csv"),
        ("launch -n 2", "<PROGRAM>"),
        ("launch true", "--ranks"),
        ("launch -n 0 true", "1 to 1024"),
        ("launch -n two true", "1 to 1024"),
        ("launch -n 2 --grace -1 true", "--grace"),
    ] {
        let run = aether(arguments.split(' '));
        assert_eq!(run.code, 2, "{arguments}: {}", run.stderr);
        assert!(run.stderr.contains(part), "{arguments}: {}", run.stderr);
        assert_eq!(run.stdout, "", "{arguments}");
    }
}

#[test]
fn the_help_of_every_command_names_its_options() {
    for (arguments, options) in [
        ("--help", &["bench", "devices", "launch", "train"][..]),
        ("launch --help", &["-n", "--grace", "PROGRAM", "AETHER_RANK", "AETHER_TOKEN"]),
        ("devices --help", &["--json"]),
        (
            "train --help",
            &["--data", "--target", "--devices", "--epochs", "--batch", "--seed", "cpu:4"],
        ),
        (
            "bench --help",
            &[
                "--driver",
                "--mode",
                "--ranks",
                "-b",
                "-e",
                "-f",
                "-n",
                "-w",
                "-d",
                "-o",
                "-r",
                "-c",
                "--in-place",
                "--format",
            ],
        ),
    ] {
        let run = aether(arguments.split(' '));
        assert_eq!(run.code, 0, "{arguments}");
        assert!(options.iter().all(|it| run.stdout.contains(it)), "{arguments}: {}", run.stdout);
    }
}
