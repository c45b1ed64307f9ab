//! What `--help` says beyond the options themselves: examples, and only the flags that act.

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory};

use super::Cli;

/// Flags that say on which device work runs and how, and the limit of what a model may take of it.
const DEVICE: [&str; 4] = ["adapter", "runtime_checks", "unchecked_files", MEMORY];
const MEMORY: &str = "memory_limit";

/// Command lines, without `lathe`, and what each does, in the order of the list of `lathe --help`.
/// `compare` has its own.
const EXAMPLES: &[(&str, &str)] = &[
    ("doctor", "what adapters there are"),
    ("doctor --measure", "and what the chosen one does at most"),
    ("doctor --json --adapter llvmpipe", "of another adapter, for a bug report"),
    ("list", "kernels, variants, and whether this adapter has them"),
    ("list --adapter 1", "the same for another adapter"),
    ("list --json", "with parameters and reasons"),
    ("validate gemv", "every variant of a kernel"),
    ("validate mine.wgsl --set WG=64", "a file of yours, a value for an override"),
    ("validate mine.wgsl --limits all", "which adapters it fits, without any of them"),
    ("show gemv/vec2", "the linked text"),
    ("show gemv/vec2 --shape K=1152,ROWS=6912", "with the numbers of a shape"),
    ("show glu/vec4 --as msl", "what Metal would compile"),
    ("map mine.wgsl gemv", "a skeleton beside it, mine.toml"),
    ("map mine.wgsl gemv/naive", "in the place of a variant"),
    ("map theirs.wgsl rms_norm", "any kernel"),
    ("check", "every variant of every kernel"),
    ("check gemv/naive --wgsl mine.wgsl --watch", "your file, whenever it is saved"),
    ("bench gemv --shape ROWS=1152,K=6912", "all variants at one shape"),
    ("bench gemv/vec2 glu --first --save run.json", "several, and keep the samples"),
    ("bench gemv/naive --wgsl mine.wgsl", "your file in a variant's place"),
    ("suite model.gguf", "the quick tier"),
    ("suite a.gguf b.gguf --tier standard -o run.json", "two models side by side"),
    ("suite --arch gemma3-1b,llama3.2-1b --html suite.html", "no checkpoint at hand"),
    ("ab gemv --a naive --b vec2", "two variants"),
    ("ab gemv --a vec2 --b mine.wgsl --processes 5", "a file of yours, in fresh processes"),
    ("ab decode --model model.gguf --a gemv=naive --b gemv=vec2", "in whole steps"),
    ("report run.json -o report.html", "one record"),
    ("report base.json new.json -o both.html", "two, side by side"),
    ("report monday.json tuesday.json friday.json -o week.html", "a table of all first"),
    ("merge shards/*.json -o records", "a record an adapter and build"),
    ("merge stores/*.json -o tuned.json", "one store of tuned choices"),
    ("merge old.json new.json -o tuned.json --prefer newest", "where they contradict"),
    ("tune gemv --shape ROWS=1152,K=6912", "one kernel and shape"),
    ("tune --model model.gguf", "all that decoding this file needs"),
    ("tune --show", "what is stored"),
    ("synth --arch gemma3-mini -o mini.gguf", "a small one"),
    ("synth --arch llama3.2-1b --quant q4_k -o llama.gguf", "a real shape, quantised"),
    ("synth --arch qwen3-mini --quant q4_0 --embed-quant q8_0 -o q.gguf", "two types"),
    ("quantize model.gguf -o small.gguf --type q4_k", "a GGUF"),
    ("quantize folder -o model.gguf --type q8_0", "a folder with safetensors"),
    ("quantize folder -o model.gguf --type bf16", "as it is, in one file"),
    ("inspect model.gguf", "what it holds"),
    ("inspect folder", "a folder with safetensors"),
    ("inspect model.gguf --context 8192", "and whether that fits the device"),
    ("decode model.gguf --prompt-tokens 2,5,7 -n 32", "from token ids"),
    ("decode model.gguf --chat hello -n 64", "through its chat template"),
    ("decode model.gguf --prompt-tokens 2 -n 64 --profile run.json", "operation by operation"),
    ("diff model.gguf --prompt-tokens 2,5,7", "a prompt"),
    ("diff model.gguf --prompt-tokens 2,5,7 -n 4", "and four generated steps"),
    ("diff model.gguf --prompt-tokens 2 --hint gemv=mine.wgsl", "with a file of yours"),
    ("perplexity model.gguf --text text.txt", "in windows of 512"),
    ("perplexity small.gguf --text text.txt --reference model.gguf", "against another"),
    ("perplexity model.gguf --text text.txt --limit 2048 --kv f32", "its beginning"),
    ("completions bash", "for bash"),
    ("completions zsh", "for zsh"),
    ("completions fish", "for fish"),
    ("man man1", "into a folder that exists"),
    ("man /usr/local/share/man/man1", "for all users"),
    ("man .", "here"),
];

/// The flags above that do nothing in a command: all, the limit alone, or none.
fn without_effect(command: &str) -> &'static [&'static str] {
    match command {
        "validate" | "show" | "map" | "compare" | "report" | "merge" | "synth" | "quantize"
        | "completions" | "man" => &DEVICE,
        "doctor" | "list" | "check" => &[MEMORY],
        "bench" | "suite" | "ab" | "tune" | "tune-candidates" | "inspect" | "decode" | "diff"
        | "perplexity" => &[],
        // Whoever adds a command says which act in it: until then none is taken.
        _ => &DEVICE,
    }
}

/// The examples of a command.
fn examples_of(command: &str) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    EXAMPLES.iter().filter(move |(line, _)| line.split(' ').next() == Some(command))
}

/// Its examples as the text of `--help`; none where it has none.
fn examples(command: &str) -> Option<String> {
    let width = examples_of(command).map(|(line, _)| line.chars().count()).max()?;
    // Beside each other where a terminal of 80 columns has room.
    let beside = width + examples_of(command).map(|(_, what)| what.len()).max()? < 70;
    let mut text = String::from("Examples:");
    for (line, what) in examples_of(command) {
        text.push_str(&match beside {
            true => format!("\n  lathe {line:<width$}  {what}"),
            false => format!("\n  lathe {line}\n      {what}"),
        });
    }
    Some(text)
}

/// The command line as clap knows it, with everything that this module adds.
pub(super) fn command() -> Command {
    let command = Cli::command();
    let global: Vec<Arg> = command.get_arguments().cloned().collect();
    command.mut_subcommands(|sub| {
        // What a command has of its own is not taken from above: there it would be shown.
        let idle = without_effect(sub.get_name());
        let hidden = global.iter().filter(|arg| idle.iter().any(|id| arg.get_id() == id));
        let sub = sub.args(hidden.map(|arg| arg.clone().hide(true)));
        match (examples(sub.get_name()), sub.get_after_help().cloned()) {
            (None, _) => sub,
            (Some(text), None) => sub.after_help(text),
            (Some(text), Some(own)) => sub.after_help(format!("{own}\n\n{text}")),
        }
    })
}

/// What was asked for that does nothing in this command, as a sentence.
pub(super) fn idle(matches: &ArgMatches) -> Option<String> {
    let (name, sub) = matches.subcommand()?;
    let given = |id: &&&str| sub.value_source(id) == Some(ValueSource::CommandLine);
    let flag = without_effect(name).iter().find(given)?.replace('_', "-");
    Some(format!("--{flag} does nothing in `lathe {name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<&str> {
        std::iter::once("lathe").chain(line.split(' ')).collect()
    }

    #[test]
    fn every_command_has_three_examples_that_parse() {
        let command = command();
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let name = sub.get_name();
            if name == "help" {
                continue;
            }
            let help = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Examples:"), "{name}");
            if name == "compare" {
                assert!(help.matches(&format!("lathe {name}")).count() >= 2, "{name}");
                continue;
            }
            assert_eq!(examples_of(name).count(), 3, "{name}");
            for (line, _) in examples_of(name) {
                let parsed = self::command().try_get_matches_from(words(line));
                let matches = parsed.unwrap_or_else(|e| panic!("{line}: {e}"));
                assert_eq!(idle(&matches), None, "{line}");
            }
        }
    }

    #[test]
    fn a_flag_that_does_nothing_is_hidden_and_refused() {
        let help = |name: &str| {
            let mut command = command();
            command.build();
            let sub = command.find_subcommand_mut(name).expect("a command");
            sub.render_long_help().to_string()
        };
        assert!(help("decode").contains("--memory-limit") && help("decode").contains("--adapter"));
        for name in ["report", "compare", "synth"] {
            assert!(!help(name).contains("--adapter"), "{name}");
            assert!(!help(name).contains("--unchecked-files"), "{name}");
        }
        let asked = |line: &str| idle(&command().try_get_matches_from(words(line)).expect(line));
        for line in ["report a.json -o b.html --adapter 1", "--adapter 1 report a.json -o b.html"] {
            assert_eq!(asked(line).as_deref(), Some("--adapter does nothing in `lathe report`"));
        }
        assert_eq!(asked("list --adapter 1"), None);
        assert!(asked("list --memory-limit 1GB").is_some());
    }
}
