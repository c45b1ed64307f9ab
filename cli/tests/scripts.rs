//! The command's contract as scripts (`tests/scripts/*.txt`): commands with their exit codes, words
//! of their output, and values of their documents.
//!
//! ```text
//! == TITLE                   a section, which has a folder of its own, `@`
//! needs gpu software …       skips the rest of the section where one is missing
//! write NAME TEXT            a file of the folder; without TEXT the lines `| …` that follow
//! copy NAME SOURCE           SOURCE is KERNEL/VARIANT or a file
//! fifo NAME                  a pipe that nobody writes to
//! edit NAME FROM => TO       FROM, which must be in the file, or `^`, which is its beginning
//! base ARGS                  arguments with which the lines `+` begin
//! < TEXT                     standard input of the next command
//! apart                      runs the next command in a process of its own
//! $ ARGS ? CODES WORDS       a command: its exit codes (`0|6`, without them 0), words on stderr
//! + ARGS ? CODES WORDS       the same after the base
//! > WORDS      2> WORDS      words on stdout, on stderr; with `>!` and `2>!` they are not there
//! >= FILE                    stdout is this file
//! . PATH OP VALUE            a value of the document on stdout; `.FILE PATH …` of another
//! has PATHS                  values that are there
//! let NAME PATH              a value under a name, for `{NAME}`; `let NAME > WORDS` is the rest
//!                            of the line on stdout that begins with these words
//! count N WORDS              so many lines on stdout have these words; `2count` on stderr
//! table                      stdout is a table of at most 80 columns
//! file NAME WORDS            words in a file
//! files NAMES                the names of all files of the folder
//! same FILE FILE             two files have the same text
//! ```
//!
//! `@/` is the section's folder, `%/` that of the goldens, and `~/` the repository; `\n` and `\xff`
//! in texts are bytes. A command that is refused (exit codes 2 and 5, but not `5+`) prints nothing on
//! stdout. Arguments `NAME=VALUE` in front of a command are its environment; `ROOM=1` is a disk on
//! which no file has more than a kilobyte, `STDOUT=full` a device without room, `STDOUT=closed` a pipe
//! that nobody reads, and `EXAMPLE=NAME` runs an example in the command's place.
//!
//! A path is a JSON pointer, in which `*` stands for all elements and `KEY=VALUE` or `KEY~WORDS` for
//! those that have this value. At its end `#` is the number of an array's elements, `##` that of
//! different values. All values it leads to have to be right, and there has to be one. Operators:
//! `=`, `!=`, `<`, `>`, `<=`, `>=`, `~` (has these words), `!~`.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::common::{
    self, Folder, code, command_in, escaped, golden_name, repository, said, stderr, stdout,
};

macro_rules! scripts {
    ($($name:ident)*) => {
        const NAMES: &[&str] = &[$(concat!(stringify!($name), ".txt")),*];
        $(#[test]
        fn $name() {
            run(stringify!($name));
        })*
    };
}

scripts!(chat decode examples files measure mistakes perplexity usage);

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

#[test]
fn every_script_runs() {
    let mut all: Vec<_> =
        std::fs::read_dir(scripts()).unwrap().map(|e| e.unwrap().file_name()).collect();
    all.sort();
    assert_eq!(all, NAMES);
}

/// Runs all sections of a script, and fails with the line at which each of them failed.
fn run(name: &str) {
    let text = std::fs::read_to_string(scripts().join(format!("{name}.txt"))).unwrap();
    let (mut failed, mut section) = (Vec::new(), Section::default());
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let mut block = String::new();
        while let Some((_, more)) = lines.next_if(|(_, next)| next.starts_with('|')) {
            block += more[1..].strip_prefix(' ').unwrap_or(&more[1..]);
            block.push('\n');
        }
        if line.starts_with("== ") {
            section = Section::default();
        } else if !section.is_over && !line.is_empty() && !line.starts_with('#') {
            section.at = format!("{name}.txt:{}: {line}", number + 1);
            let statement = AssertUnwindSafe(|| section.statement(line, &block));
            if catch_unwind(statement).is_err() {
                section.is_over = true;
                failed.push(section.at.clone());
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[derive(Default)]
struct Section {
    at: String,
    /// Skipped or failed.
    is_over: bool,
    folder: Folder,
    names: BTreeMap<String, String>,
    base: String,
    is_apart: bool,
    stdin: Option<Vec<u8>>,
    output: Option<Output>,
}

impl Section {
    fn statement(&mut self, line: &str, block: &str) {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = &self.filled(rest);
        let (first, others) = rest.split_once(' ').unwrap_or((rest, ""));
        match verb {
            "needs" => self.is_over = rest.split(' ').any(|need| !self.has(need)),
            "write" if others.is_empty() => drop(self.folder.write(rest, self.filled(block))),
            "write" => drop(self.folder.write(first, escaped(others))),
            "copy" => match others.split_once('/').filter(|_| !others.starts_with('/')) {
                Some((kernel, variant)) => {
                    let text = lathe_kernels::source(kernel, variant).expect(&self.at).text;
                    self.folder.write(first, text);
                }
                None => drop(std::fs::copy(others, self.folder.path(first)).expect(&self.at)),
            },
            "fifo" => {
                let made = Command::new("mkfifo").arg(self.folder.path(rest)).status();
                assert!(made.unwrap().success(), "{}", self.at);
            }
            "edit" => {
                let (from, to) = others.split_once(" =>").expect(&self.at);
                let (from, to) = (escaped(from), escaped(to.strip_prefix(' ').unwrap_or(to)));
                let old = std::fs::read(self.folder.path(first)).expect(&self.at);
                let new = match &from[..] {
                    b"^" => [to, old].concat(),
                    _ => replaced(&old, &from, &to).expect(&self.at),
                };
                self.folder.write(first, new);
            }
            "base" => self.base = format!("{rest} "),
            "<" => self.stdin = Some(escaped(rest)),
            "apart" => self.is_apart = true,
            "$" => self.command(rest),
            "+" => self.command(&format!("{}{rest}", self.base)),
            ">" => self.holds(stdout(self.output()).contains(&**rest)),
            ">!" => self.holds(!stdout(self.output()).contains(&**rest)),
            "2>" => self.holds(stderr(self.output()).contains(&**rest)),
            "2>!" => self.holds(!stderr(self.output()).contains(&**rest)),
            ">=" => self.holds(stdout(self.output()) == std::fs::read_to_string(rest).unwrap()),
            "file" => {
                let text = self.folder.read(first);
                assert!(text.contains(others), "{}\n{text}", self.at);
            }
            "same" => assert_eq!(self.folder.read(first), self.folder.read(others), "{}", self.at),
            "files" => {
                let all = std::fs::read_dir(&self.folder).unwrap();
                let mut all: Vec<_> = all.map(|e| e.unwrap().file_name()).collect();
                all.sort();
                let expected: Vec<_> = rest.split_whitespace().collect();
                assert_eq!(all, expected, "{}", self.at);
            }
            "count" | "2count" => {
                let of = if verb == "count" { stdout } else { stderr };
                let text = of(self.output());
                let lines = text.lines().filter(|line| line.contains(others)).count();
                self.holds(lines.to_string() == first);
            }
            "table" => {
                let text = stdout(self.output());
                let lines = || text.lines().filter(|line| line.starts_with('|'));
                let fits = lines().all(|line| line.chars().count() <= 80);
                self.holds(lines().count() > 2 && fits && !text.contains('\u{1b}'));
            }
            "let" => {
                let value = match others.strip_prefix("> ") {
                    None => shown(self.values(&self.document(), others)[0]),
                    Some(words) => {
                        let text = stdout(self.output());
                        let rest = text.lines().find_map(|line| line.trim().strip_prefix(words));
                        rest.unwrap_or_else(|| panic!("{}\n{text}", self.at)).to_owned()
                    }
                };
                self.names.insert(first.to_owned(), value);
            }
            "has" => {
                let document = self.document();
                let mut paths = rest.split_whitespace().map(|path| self.values(&document, path));
                self.holds(paths.all(|all| all.iter().all(|value| !value.is_null())));
            }
            "." => self.value(&self.document(), rest),
            _ if verb.starts_with('.') => {
                let text = std::fs::read(self.filled(&verb[1..])).expect(&self.at);
                self.value(&serde_json::from_slice(&text).expect(&self.at), rest);
            }
            _ => panic!("{}: no such statement", self.at),
        }
    }

    /// A text with the names of folders and values.
    fn filled(&self, text: &str) -> String {
        let folder = self.folder.as_ref().display().to_string();
        let text = text.replace("@/", &format!("{folder}/")).replace("%/", &golden_name(""));
        let text = text.replace("~/", &repository(""));
        self.names.iter().fold(text, |text, (name, to)| text.replace(&format!("{{{name}}}"), to))
    }

    fn has(&self, need: &str) -> bool {
        let (gpu, known) = (common::gpu(), |is: fn(&common::Device) -> bool| {
            common::gpu().is_some_and(|gpu| is(&gpu))
        });
        let has = match need {
            "gpu" => gpu.is_some(),
            "software" => known(|gpu| gpu.adapter.software),
            "timestamps" => known(|gpu| gpu.adapter.timestamps),
            "subgroups" => known(|gpu| gpu.caps.subgroup.is_some()),
            "f16" => known(|gpu| gpu.caps.f16),
            "vulkan" => known(|gpu| gpu.adapter.backend == "vulkan"),
            "linux" => cfg!(target_os = "linux"),
            "unix" => cfg!(unix),
            _ => panic!("{}: no such need", self.at),
        };
        if !has {
            eprintln!("UNAVAILABLE, not tested: {}", self.at);
        }
        has
    }

    fn command(&mut self, line: &str) {
        let (args, end) = line.split_once(" ? ").unwrap_or((line, "0"));
        let (codes, says) = end.split_once(' ').unwrap_or((end, ""));
        let (codes, prints) = codes.strip_suffix('+').map_or((codes, false), |c| (c, true));
        let words = split(args);
        let set = |word: &String| word.split_once('=').is_some_and(|(n, _)| is_variable(n));
        let n = words.iter().take_while(|word| set(word)).count();
        let args: Vec<&str> = words[n..].iter().map(String::as_str).collect();
        let relative = args.iter().any(|arg| is_relative(arg));
        let apart = std::mem::take(&mut self.is_apart) || relative || n > 0;
        let output = match self.stdin.take() {
            None if !apart => common::lathe(&args),
            stdin => self.apart(&args, &words[..n], &stdin.unwrap_or_default()),
        };
        let (code, at) = (code(&output), &self.at);
        assert!(codes.split('|').any(|c| c == code.to_string()), "{at}\n{code}: {}", said(&output));
        assert!(stderr(&output).contains(says), "{at}\n{}", stderr(&output));
        let refused = n == 0 && !prints && [2, 5].contains(&code);
        assert!(!refused || output.stdout.is_empty(), "{at}\n{}", stdout(&output));
        self.output = Some(output);
    }

    /// A command in a process of its own, in the section's folder.
    fn apart(&self, args: &[&str], variables: &[String], stdin: &[u8]) -> Output {
        let mut command = command_in(&self.folder, args);
        let (mut stdout, mut is_closed) = (Stdio::piped(), false);
        for (name, value) in variables.iter().filter_map(|word| word.split_once('=')) {
            match (name, value) {
                ("ROOM", _) => {
                    let limit = "trap '' XFSZ; ulimit -f 1; exec \"$@\"";
                    let own = std::mem::replace(&mut command, Command::new("bash"));
                    command.args(["-c", limit, "bash"]).arg(own.get_program()).args(own.get_args());
                    // A driver's cache of shaders would be cut short too.
                    command.current_dir(&self.folder).env("MESA_SHADER_CACHE_DISABLE", "true");
                }
                ("EXAMPLE", example) => {
                    let folder = Path::new(env!("CARGO_BIN_EXE_lathe")).with_file_name("examples");
                    command = Command::new(folder.join(example));
                    command.args(args).current_dir(&self.folder);
                }
                ("STDOUT", "full") => {
                    stdout = File::options().write(true).open("/dev/full").unwrap().into();
                }
                ("STDOUT", _) => is_closed = true,
                (_, "") => _ = command.env_remove(name),
                _ => _ = command.env(name, value),
            }
        }
        command.stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        if is_closed {
            drop(child.stdout.take());
        }
        // One that does not read it may be over already.
        let _ = child.stdin.take().unwrap().write_all(stdin);
        child.wait_with_output().unwrap()
    }

    fn output(&self) -> &Output {
        self.output.as_ref().expect(&self.at)
    }

    #[track_caller]
    fn holds(&self, is_right: bool) {
        assert!(is_right, "{}\n{}", self.at, said(self.output()));
    }

    /// stdout as one JSON document with a schema version.
    fn document(&self) -> Value {
        let value: Value = serde_json::from_slice(&self.output().stdout)
            .unwrap_or_else(|e| panic!("{}: {e}\n{}", self.at, said(self.output())));
        assert_eq!(value["schema_version"], 1, "{}", self.at);
        value
    }

    fn values<'a>(&self, document: &'a Value, path: &str) -> Vec<&'a Value> {
        let values = path.split('/').skip(1).fold(vec![document], |values, part| {
            let of = |value: &'a Value| -> Vec<&'a Value> {
                let elements = value.as_array().into_iter().flatten();
                if part == "*" {
                    elements.collect()
                } else if let Some((key, text)) = part.split_once('=') {
                    elements.filter(|e| shown(at(e, key)) == text).collect()
                } else if let Some((key, words)) = part.split_once('~') {
                    elements.filter(|e| shown(at(e, key)).contains(words)).collect()
                } else {
                    vec![at(value, part)]
                }
            };
            values.into_iter().flat_map(of).collect()
        });
        assert!(!values.is_empty(), "{}\n{document:#}", self.at);
        values
    }

    /// Judges values of a document: `PATH OP VALUE`.
    fn value(&self, document: &Value, line: &str) {
        let [path, op, text] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("{}: PATH OP VALUE", self.at)
        };
        let expected = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        let (values, length) = match path.strip_suffix("/#") {
            Some(path) => (self.values(document, path), true),
            None => (self.values(document, path.trim_end_matches("/##")), false),
        };
        let different = || values.iter().map(ToString::to_string).collect::<HashSet<_>>().len();
        let values: Vec<Value> = match () {
            () if length => values.iter().map(|v| v.as_array().map(Vec::len).into()).collect(),
            () if path.ends_with("/##") => vec![different().into()],
            () => values.into_iter().cloned().collect(),
        };
        for value in &values {
            let numbers = value.as_f64().zip(expected.as_f64());
            let equal = numbers.map_or(*value == expected, |(a, b)| a == b);
            let is_right = match op {
                "=" => equal,
                "!=" => !equal,
                "~" => shown(value).contains(text),
                "!~" => !shown(value).contains(text),
                "<" => numbers.is_some_and(|(a, b)| a < b),
                ">" => numbers.is_some_and(|(a, b)| a > b),
                "<=" => numbers.is_some_and(|(a, b)| a <= b),
                ">=" => numbers.is_some_and(|(a, b)| a >= b),
                _ => panic!("{}: no such operator", self.at),
            };
            assert!(is_right, "{}: {value}\n{document:#}", self.at);
        }
    }
}

/// A value as text: a string without its quotation marks.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A value's element or member, and `Null` where it has none.
fn at<'a>(value: &'a Value, key: &str) -> &'a Value {
    match key.parse::<usize>() {
        Ok(at) if value.is_array() => value.get(at).unwrap_or(&Value::Null),
        _ => &value[key],
    }
}

/// Bytes with `to` wherever there was `from`, and `None` where it is not.
fn replaced(old: &[u8], from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
    let (mut new, mut rest) = (Vec::new(), old);
    while let Some(at) = rest.windows(from.len()).position(|window| window == from) {
        new.extend_from_slice(&rest[..at]);
        new.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    new.extend_from_slice(rest);
    (rest.len() < old.len()).then_some(new)
}

fn is_variable(name: &str) -> bool {
    name.len() > 3 && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
}

/// A file that is named from the folder in which the command runs.
fn is_relative(arg: &str) -> bool {
    [".wgsl", ".toml", ".json", ".csv"].iter().any(|end| arg.ends_with(end)) && !arg.contains('/')
}

/// Words at spaces, except within single quotation marks.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut quoted, mut word) = (Vec::new(), false, None::<String>);
    for c in line.chars() {
        match c {
            '\'' => (quoted, word) = (!quoted, Some(word.unwrap_or_default())),
            ' ' if !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}
