//! Many records at a glance: whole decodes side by side, before any of them in full.

use lathe_record::record::{
    Body, GenerationTest, GenerationTests, Profile, Record, Suite, SuiteModel,
};

use super::ceilings::Bandwidths;
use super::markup::{NONE, Set, Table, maybe, meter, number, percent, ratio, sound, text, two};
use super::svg::figure;

/// One decode of one record.
struct Row<'a> {
    /// Place of the record.
    index: usize,
    record: &'a Record,
    model: String,
    /// What ran.
    what: String,
    tok_s: Option<f64>,
    gpu_ms: Option<f64>,
    /// The step's bytes over its GPU time, of the copy bandwidth.
    of_copy: Option<f64>,
}

/// The table of all decodes; nothing where fewer than two were measured.
pub(super) fn decodes(records: &[(String, Record)]) -> String {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for (index, (_, record)) in records.iter().enumerate() {
        match &record.body {
            Body::Profile(profile) => rows.push(of_profile(index, record, profile)),
            Body::GenerationTests(run) => rows.extend(of_tests(index, record, run)),
            Body::Suite(run) => rows.extend(of_suite(index, record, run)),
            Body::Bench(_) | Body::Ab(_) => {}
        }
    }
    if rows.len() < 2 {
        return String::new();
    }
    // Same adapter and model together; of those what ran alike, the newest first.
    rows.sort_by(|a, b| {
        let key =
            |r: &Row<'_>| (r.record.environment.adapter.clone(), r.model.clone(), r.what.clone());
        let date = |r: &Row<'_>| r.record.environment.date.clone();
        key(a).cmp(&key(b)).then_with(|| date(b).cmp(&date(a))).then(a.index.cmp(&b.index))
    });
    let most = rows.iter().filter_map(|row| row.tok_s).fold(0.0, f64::max);
    let mut table = Table::new("Decodes of all records, tokens a second by the wall clock");
    for group in rows.chunk_by(|a, b| a.record.environment.adapter == b.record.environment.adapter)
    {
        table.group(format!("<b>{}</b>", text(&group[0].record.environment.adapter)));
        for row in group {
            let environment = &row.record.environment;
            let commit = environment.commit.as_deref().unwrap_or(NONE);
            let day = environment.date.split('T').next().unwrap_or_default();
            let bar = row.tok_s.and_then(|t| ratio(t, most)).map_or_else(String::new, meter);
            let link = format!("<a href=\"#r{0}\">{1}</a>", row.index, row.index + 1);
            table.row([
                ("model", Set::Made, two(&row.model, &row.what)),
                ("tok/s", Set::Figure, maybe(row.tok_s, 1)),
                ("", Set::Made, bar),
                ("GPU ms a token", Set::Figure, maybe(row.gpu_ms, 3)),
                (
                    "% of copy bandwidth",
                    Set::Figure,
                    row.of_copy.map_or_else(|| NONE.to_owned(), percent),
                ),
                ("date", Set::Figure, day.to_owned()),
                ("commit", Set::Name, commit.chars().take(7).collect()),
                ("record", Set::Made, link),
            ]);
        }
    }
    let caption = if rows.iter().any(|row| row.of_copy.is_some()) {
        "One sequence at a time; of a suite one configuration. % of copy bandwidth: the bytes that a step must move, over its GPU time, of the bandwidth \
         that the same run measured. Bars: tokens a second, of the largest here."
    } else {
        "One sequence at a time; of a suite one configuration. Bars: tokens a second, of the largest \
         here."
    };
    figure("All decodes", &table.finish(), caption)
}

fn of_profile<'a>(index: usize, record: &'a Record, profile: &Profile) -> Row<'a> {
    let gpu_ms = profile.unprofiled.gpu_ms_per_token.and_then(sound).filter(|ms| *ms > 0.0);
    let bytes: f64 = profile.by_op.iter().filter_map(|op| sound(op.bytes)).sum();
    let rate = gpu_ms.and_then(|ms| ratio(bytes / 1e6, ms)).filter(|rate| *rate > 0.0);
    let copy = Bandwidths::of(&record.environment).copy;
    Row {
        index,
        record,
        model: profile.model.clone(),
        what: format!("profile, {} prompt tokens", profile.prompt_tokens),
        tok_s: sound(profile.unprofiled.decode_tok_s),
        gpu_ms,
        of_copy: rate.zip(copy).and_then(|(rate, copy)| ratio(rate, copy)),
    }
}

fn of_tests<'a>(index: usize, record: &'a Record, run: &'a GenerationTests) -> Vec<Row<'a>> {
    // Several sequences together are no faster decode of one.
    let alone =
        |test: &&GenerationTest| test.n_gen > 0 && test.n_prompt == 0 && test.sequences == 1;
    let row = |test: &GenerationTest| {
        let steps = test.steps_per_submit.unwrap_or(1);
        let steps =
            if steps == 1 { "1 step".into() } else { format!("{} steps", number(steps as f64, 0)) };
        Row {
            index,
            record,
            model: test.model.file().to_owned(),
            what: format!("{}, {steps} a submission", test.test),
            tok_s: sound(test.avg_ts),
            gpu_ms: None,
            of_copy: None,
        }
    };
    run.tests.iter().filter(alone).map(row).collect()
}

fn of_suite<'a>(index: usize, record: &'a Record, run: &'a Suite) -> Vec<Row<'a>> {
    // One configuration stands for all: the one that is about decoding, where it was run.
    let row = |model: &'a SuiteModel| {
        let (name, config) =
            model.configs.get_key_value("decode").or_else(|| model.configs.first_key_value())?;
        Some(Row {
            index,
            record,
            model: model.model.file().to_owned(),
            what: format!("suite, {name}"),
            tok_s: sound(config.decode_tok_s),
            gpu_ms: None,
            of_copy: None,
        })
    };
    run.models.iter().filter_map(row).collect()
}
