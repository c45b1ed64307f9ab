//! Templates of the shapes that models have, and hostile ones.

use std::time::Duration;

use super::*;

fn try_render(source: &str, texts: &[(&str, &str)]) -> Result<String, ChatError> {
    let tokens = vec![("bos_token".to_owned(), "<bos>".to_owned())];
    ChatTemplate::new(source, tokens)?.render(&Conversation::of(texts))
}

/// The message has all of `parts`.
#[track_caller]
fn fails(source: &str, parts: &[&str]) {
    let error = try_render(source, &[("user", "hello")]).unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
    assert!(error.len() < 2000, "{error}");
}

#[test]
fn templates_find_what_the_transformers_library_gives_them() {
    let text = [("user", "Hello, World")];
    for (source, expected) in [
        // The mark of transformers for training, with a scope of its own; not in texts.
        (
            "{% set a = 1 %}{%- generation -%} b\n{% set a = 2 %}{{ a }}{% endgeneration %}{{ a }}",
            "b\n21",
        ),
        (
            "{# {% generation %} #}{{ '{% generation %}' }}{% raw %}{% generation %}{% endraw %}",
            "{% generation %}{% generation %}",
        ),
        // Trimmed blocks, and one new line at the end is left out.
        ("a\n  {% if true %}\nb\n  {% endif %}\nc\n", "a\nb\nc"),
        (
            "{{ messages[0].content.upper().replace('L', 'l').split(', ')|join('|') }}",
            "HEllO|WORlD",
        ),
        ("{{ ' x '.strip() + 'xay'.rstrip('y').lstrip('x') + ''.join(['b', 'c']) }}", "xabc"),
        ("{{ messages[0].get('name', 'nobody') ~ messages[0].items()|length }}", "nobody2"),
        (
            "{% for c in 'abcd' %}{% if c == 'b' %}{% continue %}{% elif c == 'd' %}{% break %}{% endif %}{{ c }}{% endfor %}",
            "ac",
        ),
        ("{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{{ twice('ab') }}", "abab"),
        ("{{ tools is none and documents is none and not enable_thinking is defined }}", "True"),
        // Ends of lines are Jinja's, floats Python's.
        ("a\r\n{% if true %}\r\nb\r{% endif %}\r\n", "a\nb\n"),
        (
            "{{ 1e16 }} {{ 1e-5 }} {{ 2.5e-7|string }} {{ 1.0 }} {{ 3 }}",
            "1e+16 1e-05 2.5e-07 1.0 3",
        ),
        ("{{ missing|default('a') }}{{ none|d('b') }}{{ ''|default('c', true) }}", "aNonec"),
        ("{{ ''|default('a', boolean=true) }}{{ x|d(default_value='b') }}{{ x|default }}", "ab"),
        ("{{ 'aaa'.replace('a', 'b', 2) }} {{ 'aa'.replace('a', 'b', -1) }}", "bba bb"),
        (
            "{{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }}{{ 'a'.removeprefix('b') }}",
            "bc aba",
        ),
        (
            "{{ 'a,b,c'.rsplit(',', 1) }} {{ 'a,b'.rsplit(',') }} {{ 'a'.rsplit(',', 0) }}",
            "['a,b', 'c'] ['a', 'b'] ['a']",
        ),
        (
            "{{ {none: 1, true: 2, 1.5: 3, 'a': 4}|tojson }}",
            r#"{"null": 1, "true": 2, "1.5": 3, "a": 4}"#,
        ),
        ("{{ missing }}{% if missing %}x{% endif %}{{ '<&>' }}", "<&>"),
        ("{{ bos_token }}{{ eos_token }}", "<bos>"),
        ("{{ strftime_now('%Y-%m-%d')|length }} {{ strftime_now('%%') }}", "10 %"),
        ("{{ '{}<{{{}}}>'.format('a', none) }}{{ '{0}{0}'.format(1) }}", "a<{None}>11"),
        (
            "{% set ns = namespace(n=0) %}{% for i in range(5) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
            "10",
        ),
        ("{{ messages | map(attribute='role') | list }}", "['user']"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{- 'content' in messages[0] }} {{ messages[-1]['content'][:5] }}", "True Hello"),
    ] {
        let rendered = try_render(source, &text).unwrap_or_else(|e| panic!("{source}: {e}"));
        assert_eq!(rendered, expected, "{source}");
    }
}

/// Expected texts are those of Python's `json.dumps`.
#[test]
fn conversations_have_tools_variables_and_messages_of_any_shape() {
    let json = r#"[{"role": "tool", "z": [1, 1.0, 1e16, -2.5e-7, 12345678.9, null, true],
        "a": {"é": "q\"\\\n\u0001 🙂"}, "empty": [[], {}]}]"#;
    let mut all = Conversation::default();
    all.add_messages(json).unwrap();
    all.add_tools(r#"[{"type": "function", "function": {"name": "f"}}]"#).unwrap();
    all.set("enable_thinking", "false").unwrap();
    all.set("date_string", r#""today""#).unwrap();
    all.say("user", "<a> & 'b'");
    assert_eq!(all.last_role().as_deref(), Some("user"));
    for (source, expected) in [
        (
            "{{ messages[0]|tojson }}",
            r#"{"role": "tool", "z": [1, 1.0, 1e+16, -2.5e-07, 12345678.9, null, true], "a": {"é": "q\"\\\n\u0001 🙂"}, "empty": [[], {}]}"#,
        ),
        (
            "{{ messages[0].a|tojson(ensure_ascii=True) }}",
            r#"{"\u00e9": "q\"\\\n\u0001 \ud83d\ude42"}"#,
        ),
        ("{{ messages[0].empty|tojson(indent=2) }}", "[\n  [],\n  {}\n]"),
        (
            "{{ tools[0]|tojson(separators=(',', ':'), sort_keys=true) }}",
            r#"{"function":{"name":"f"},"type":"function"}"#,
        ),
        (
            "{% for t in tools %}{{ t|tojson(indent=1) }}{% endfor %}",
            "{\n \"type\": \"function\",\n \"function\": {\n  \"name\": \"f\"\n }\n}",
        ),
        ("{{ messages[1]|tojson }}", r#"{"role": "user", "content": "<a> & 'b'"}"#),
        ("{{ enable_thinking is false }} {{ date_string }}", "True today"),
        ("{{ tools is iterable and tools | length > 0 }}", "True"),
    ] {
        let template = ChatTemplate::new(source, vec![]).unwrap();
        assert_eq!(template.render(&all).unwrap(), expected, "{source}");
    }
    let none = try_render("{{ tools is iterable and tools | length > 0 }}", &[]);
    assert_eq!(none.unwrap(), "False");
    let error = |result: Result<(), ChatError>| result.unwrap_err().to_string();
    for (text, why) in [
        ("{}", "is no JSON array: invalid type: map"),
        ("[", "is no JSON array: EOF"),
        ("[]", "the array is empty"),
        (r#"[{"role": "user"}, 1]"#, "element 1 is no object"),
        (r#"[{"content": "a"}]"#, "element 0 has no `role`"),
        (r#"[{"role": 1}]"#, "element 0 has no `role`"),
    ] {
        let error = error(all.add_messages(text));
        assert!(error.contains(why), "{text}: {error}");
    }
    assert!(error(all.set("tools", "[]")).contains("`tools` is the conversation's own"));
    assert!(error(all.set("x", "yes")).contains("no JSON"));
    assert!(error(all.set("date_string", "1")).contains("`date_string` is set already"));
    for name in ["", "1a", "a b", "a.b"] {
        assert!(error(all.set(name, "1")).contains("is no name of a variable"), "{name}");
    }
}

/// Expected texts are transformers'.
#[test]
fn thoughts_have_the_names_that_templates_read() {
    for (message, expected) in [
        (
            r#"{"role": "a", "thinking": "t"}"#,
            r#"{"thinking": "t", "role": "a", "reasoning_content": "t"}"#,
        ),
        (
            r#"{"reasoning": "r", "role": "a"}"#,
            r#"{"thinking": "r", "reasoning": "r", "role": "a", "reasoning_content": "r"}"#,
        ),
        (
            r#"{"role": "a", "thinking": "t", "reasoning_content": "c"}"#,
            r#"{"thinking": "t", "role": "a", "reasoning_content": "c"}"#,
        ),
        (
            r#"{"role": "a", "reasoning_content": null, "thinking": ""}"#,
            r#"{"thinking": "", "role": "a", "reasoning_content": ""}"#,
        ),
        (r#"{"role": "a", "reasoning": null}"#, r#"{"role": "a", "reasoning": null}"#),
    ] {
        let mut all = Conversation::default();
        all.add_messages(&format!("[{message}]")).unwrap();
        let template = ChatTemplate::new("{{ messages[0]|tojson }}", vec![]).unwrap();
        assert_eq!(template.render(&all).unwrap(), expected, "{message}");
    }
}

#[test]
fn broken_templates_name_the_line() {
    fails("a\n{% if %}", &["chat template, line 2: syntax error"]);
    fails("a\n\n{{ 'open }}", &["line 3"]);
    fails("{% for x in messages %}", &["line 1", "end"]);
    fails("\n{{ nobody(1) }}", &["line 2", "nobody"]);
    fails("\n\n{{ 'a'|nobody }}", &["line 3", "nobody"]);
    fails("{{ 'a'.nobody() }}", &["line 1", "nobody"]);
    fails("{{ messages.nobody.more }}", &["line 1", "undefined"]);
    fails("{{ messages[0].content + 1 }}", &["line 1"]);
    fails("\n{{ strftime_now('%L') }}", &["line 2", "strftime_now"]);
    fails("\n{{ messages|tojson(width=1) }}", &["line 2", "width"]);
    fails("\n{{ messages|tojson(indent=65) }}", &["line 2", "64 at most"]);
    fails("\n{{ raise_exception('no') }}", &["line 2", "raise_exception: no"]);
    fails("{% macro f() %}\n{{ 1 / 0 }}{% endmacro %}\n\n{{ f() }}", &["line 2", "1 / 0"]);
}

#[test]
fn there_is_nothing_to_include() {
    for source in [
        "{% include '/etc/passwd' %}",
        "{% extends 'other' %}",
        "{% import 'other' as other %}",
        "{% from 'other' import thing %}",
        "\n{% block a %}{% endblock %}",
    ] {
        fails(source, &["line ", "unknown statement"]);
    }
}

#[test]
fn hostile_templates_end_with_an_error() {
    let begun = std::time::Instant::now();
    let too_much = "runs too long or makes too much";
    for source in [
        // Time.
        "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ b }}{% endfor %}{% endfor %}",
        "{% set x = range(99999)|list %}{% for a in x %}{% set y = x|sort %}{% endfor %}",
        // Memory.
        "{{ 'a' * 90000000 }}",
        "{{ ('a' * 90000000)|length }}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s.replace('a', ns.s) %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s.replace('a', ns.s, 999999) %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s|replace('a', ns.s) %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s.join(['a', ns.s, ns.s]) %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s]|join(ns.s) %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = (ns.s + ns.s)|list %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s|indent(100000000) %}{% endfor %}",
        "{{ '%1000000000s'|format('a') }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x|tojson }}",
        "{% set x = range(9999)|list %}{% for i in range(9999) %}{% set y = x|tojson %}{% endfor %}",
    ] {
        fails(source, &["line 1", too_much]);
    }
    fails("{{ 'a' * 10000000000 }}", &["line 1"]);
    fails("{{ range(1000000000000) }}", &["line 1"]);
    fails("{{ '{:1000000000}'.format('a') }}", &["line 1", "str.format"]);
    fails("{{ 'aaa'.replace('a', 'b', 'c') }}", &["line 1", "str.replace"]);
    fails("{{ 'a'.rsplit() }}{{ 'a'.rsplit('') }}", &["line 1", "str.rsplit"]);
    let loud = "{% set s = 'a' * 1000000 %}{% for i in range(9) %}{{ s }}{% endfor %}";
    fails(loud, &["makes more than 4194304 bytes of text"]);
    // Depth.
    fails("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}\n{{ f(0) }}", &["recursion limit"]);
    fails("{% for x in [[[1]]] recursive %}{{ loop([x]) }}{% endfor %}", &["line 1"]);
    fails(&format!("{}1{}", "{{ ".to_owned() + &"(".repeat(5000), ")".repeat(5000)), &["line 1"]);
    let deep = format!("{{{{ {}1 }}}}", "not ".repeat(50_000));
    assert_eq!(try_render(&deep, &[]).unwrap(), "True");
    fails(&"{% if true %}".repeat(5000), &["line 1"]);
    fails(&"a".repeat(2 << 20), &["2097152 bytes", "at most 1048576"]);
    let nested = "{% set ns = namespace(x=[]) %}{% for i in range(50000) %}{% set ns.x = [ns.x] %}{% endfor %}";
    // Deep, but it ends: nothing of it is shown.
    assert!(try_render(nested, &[("user", "a")]).is_ok_and(|text| text.is_empty()));
    fails(&format!("{nested}{{{{ ns.x|tojson }}}}"), &["more than 900 levels"]);
    for shown in ["{{ ns.x }}", "{{ ns.x == ns.x }}", "{{ [ns.x, ns.x]|unique }}"] {
        // Whatever comes out, nothing crashes.
        let _ = try_render(&format!("{nested}{shown}"), &[("user", "a")]);
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn configurations_hold_templates_and_tokens() {
    let parse = |text: &str| parse_config(text.as_bytes()).map_err(|e| e.to_string());
    let (template, tokens) = parse(
        r#"{"chat_template": "x", "bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false},
            "unk_token": null, "other": 1}"#,
    )
    .unwrap();
    assert_eq!(template.as_deref(), Some("x"));
    let expected = [("bos_token", "<s>"), ("eos_token", "</s>")];
    assert_eq!(tokens, expected.map(|(name, token)| (name.to_owned(), token.to_owned())));
    let named = r#"{"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}"#;
    assert_eq!(parse(named).unwrap().0.as_deref(), Some("d"));
    assert_eq!(parse("{}").unwrap(), (None, vec![]));
    for (text, part) in [
        ("{", "is no JSON: EOF"),
        (r#"{"chat_template": 1}"#, "`chat_template` is neither"),
        (r#"{"chat_template": [{"name": "rag", "template": "t"}]}"#, "none is called `default`"),
        (r#"{"bos_token": 1}"#, "`bos_token` is no token"),
        (r#"{"bos_token": {}}"#, "`bos_token` is no token"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn folders_have_a_file_or_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let render = || {
        let template = ChatTemplate::from_folder(folder.path()).map_err(|e| e.to_string())?;
        let rendered = template.map(|t| t.render(&Conversation::of(&[("user", "hi")])));
        rendered.transpose().map_err(|e| e.to_string())
    };
    assert_eq!(render(), Ok(None));
    write("tokenizer_config.json", r#"{"bos_token": "<s>"}"#);
    assert_eq!(render(), Ok(None));
    write(
        "tokenizer_config.json",
        r#"{"bos_token": "<s>", "chat_template": "{{ bos_token }}key"}"#,
    );
    assert_eq!(render(), Ok(Some("<s>key".into())));
    write("chat_template.jinja", "{{ bos_token }}file {{ messages[0].content }}");
    assert_eq!(render(), Ok(Some("<s>file hi".into())));
    let note = || {
        let template = ChatTemplate::from_folder(folder.path()).unwrap().unwrap();
        template.note().map(str::to_owned)
    };
    let said = note().unwrap();
    assert!(said.contains("chat_template.jinja is read; `chat_template` of "), "{said}");
    write("chat_template.jinja", "{{ bos_token }}key");
    assert_eq!(note(), None);
    write("chat_template.jinja", "a\n{% if %}");
    let error = render().unwrap_err();
    assert!(error.contains("chat_template.jinja: chat template, line 2: "), "{error}");
    std::fs::write(folder.path().join("chat_template.jinja"), b"ab\xff").unwrap();
    assert!(render().unwrap_err().contains("chat_template.jinja: chat template: byte 2"));
}
