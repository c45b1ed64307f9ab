//! Quality of a model's predictions of a text, in nats: the negative log-likelihood of each token
//! given those before it and, against a reference model, the divergence of the two distributions.
//!
//! A text is cut into windows of equal length. Each is a new sequence that begins with one start
//! token, and all of its tokens are scored: the first is predicted from the start token alone.
//!
//! Sources: Jelinek, Mercer, Bahl and Baker, *Perplexity: a measure of the difficulty of speech
//! recognition tasks*, JASA 62 (1977) S63; Kullback and Leibler, *On information and sufficiency*,
//! Ann. Math. Statist. 22 (1951) 79.

use super::decoder::Decoder;
use super::model::Model;
use lathe_device::error::{Error, Result};
use lathe_device::plan::recording::Part;
use lathe_model::tokenizer::token_type::UNUSED;
use lathe_record::stats::{Mean, mean};

/// A text as tokens, with its division into windows.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// Token that every window begins with; it is not scored.
    start: u32,
    /// The text's tokens that are scored.
    tokens: &'a [u32],
    /// Tokens of a window.
    window: usize,
}

impl<'a> Text<'a> {
    /// The whole windows of `tokens`; a rest that does not fill another window is left out. `limit`
    /// caps the number of tokens, and the last window may then end early.
    ///
    /// # Errors
    /// A window or a limit of 0, or fewer tokens than one window has.
    pub fn new(start: u32, tokens: &'a [u32], window: usize, limit: Option<usize>) -> Result<Self> {
        if window == 0 || limit == Some(0) {
            return Err(Error::Usage("a window or a limit of 0 tokens scores nothing".into()));
        }
        if tokens.len() < window && limit.is_none_or(|limit| tokens.len() < limit) {
            return Err(Error::Usage(format!(
                "the text's {} tokens do not fill a window of {window}",
                tokens.len()
            )));
        }
        let whole = tokens.len() - tokens.len() % window;
        let scored = match limit {
            // Fewer than a window: their scores are those that the first window would begin with.
            Some(limit) if limit < window => limit,
            Some(limit) => limit.min(whole),
            None => whole,
        };
        Ok(Self { start, tokens: &tokens[..scored], window })
    }

    /// Tokens that are scored.
    pub fn tokens(&self) -> usize {
        self.tokens.len()
    }

    /// The tokens of each window, in order; none is empty.
    pub fn windows(&self) -> impl ExactSizeIterator<Item = &'a [u32]> + use<'a> {
        self.tokens.chunks(self.window)
    }
}

/// The token that windows begin with: the BOS that a model's file names, else its EOS.
///
/// # Errors
/// The file names neither.
pub fn start_token(model: &Model) -> Result<u32> {
    model.config.bos.or(model.config.eos).ok_or_else(|| Error::Undecodable {
        path: model.file.path.clone(),
        reason:
            "names neither tokenizer.ggml.bos_token_id nor tokenizer.ggml.eos_token_id, one of \
                 which windows of text begin with"
                .into(),
    })
}

/// Refuses models whose token ids mean different tokens, since distributions over them cannot be
/// compared.
/// Tokens that both files call unused may be spelled as they like.
///
/// # Errors
/// Vocabularies of different sizes or with different spellings, or one that cannot be read.
pub fn same_vocabulary(model: &Model, reference: &Model) -> Result<()> {
    let differ = |what: String| {
        let [a, b] = [model, reference].map(|m| m.file.path.display());
        Err(Error::Usage(format!("{a} and {b} have different vocabularies: {what}")))
    };
    let [ours, theirs] = [model.config.vocab, reference.config.vocab];
    if ours != theirs {
        return differ(format!("{ours} and {theirs} tokens"));
    }
    // Without a tokenizer in both files the sizes are all there is.
    let (Some(ours), Some(theirs)) = (model.file.vocabulary()?, reference.file.vocabulary()?)
    else {
        return Ok(());
    };
    let unused = |id: usize| {
        [&ours, &theirs].iter().all(|v| v.token_types.get(id).is_some_and(|kind| *kind == UNUSED))
    };
    let pairs = ours.tokens.iter().zip(&theirs.tokens).enumerate();
    match pairs.into_iter().find(|(id, (a, b))| a != b && !unused(*id)) {
        Some((id, (a, b))) => differ(format!("token {id} is {a:?} and {b:?}")),
        None => Ok(()),
    }
}

/// Logits in memory at a time: positions of a window. 64 rows of a vocabulary of 262144 are 64 MiB.
const ROWS: usize = 64;

impl Decoder<'_> {
    /// A new sequence in which `tokens` are predicted: all but the last of them are fed, after
    /// `start`.
    fn begin_window(&mut self, start: u32, tokens: &[u32]) -> Result<()> {
        let fed: Vec<u32> = [start].iter().chain(tokens).take(tokens.len()).copied().collect();
        self.reset(0)?;
        self.give(0, &fed)
    }

    /// Logits after each of the next `count` tokens: (count, vocab). Token by token, since a chunk
    /// of a prompt leaves those of its last token only.
    fn logits_of(&mut self, count: usize) -> Result<Vec<f32>> {
        let mut rows = Vec::with_capacity(count * self.graph.vocab);
        for _ in 0..count {
            self.ran.push(Part::Steps(1));
            self.executor.run(&[Part::Steps(1)])?;
            let logits = self.logits()?;
            if logits.iter().any(|logit| !logit.is_finite()) {
                return Err(self.not_finite()?);
            }
            rows.extend_from_slice(&logits[..self.graph.vocab]);
        }
        Ok(rows)
    }
}

/// Scores of a text's tokens, in nats; with a reference, also its scores and how the model's
/// distributions compare with the reference's.
#[derive(Clone, Debug, Default)]
pub struct Scores {
    /// Negative log-likelihood of each token.
    pub nll: Vec<f64>,
    /// Negative log-likelihood of each token by the reference.
    pub reference_nll: Vec<f64>,
    /// Kullback-Leibler divergence of the model's distribution from the reference's.
    pub kl: Vec<f64>,
    /// 1 where both find the same token likeliest, else 0.
    pub top1: Vec<f64>,
}

/// Scores a text and compares it with a reference, if there is one. `on_tokens` hears of scored
/// tokens, a few at a time.
///
/// # Errors
/// A token beyond the vocabulary, a window longer than a context, logits that are no numbers,
/// vocabularies of different sizes, or the device is lost.
pub fn scores<'d>(
    model: &mut Decoder<'d>,
    reference: Option<&mut Decoder<'d>>,
    text: &Text<'_>,
    on_tokens: &mut dyn FnMut(usize),
) -> Result<Scores> {
    let vocab = model.graph.vocab;
    let mut sides = Vec::from_iter(std::iter::once(model).chain(reference));
    if let Some(other) = sides.iter().map(|side| side.graph.vocab).find(|v| *v != vocab) {
        return Err(Error::Usage(format!(
            "the model has a vocabulary of {vocab} tokens, the reference one of {other}"
        )));
    }
    // Before the first window takes its time; the last of a window is never fed, and has a logit.
    sides[0].graph.knows(text.tokens, "")?;
    let mut scores = Scores::default();
    for (index, tokens) in text.windows().enumerate() {
        for side in &mut sides {
            side.begin_window(text.start, tokens)?;
        }
        for (first, piece) in tokens.chunks(ROWS).enumerate() {
            let rows = sides.iter_mut().map(|side| side.logits_of(piece.len()));
            let rows = rows.collect::<Result<Vec<_>>>()?;
            for (i, token) in piece.iter().enumerate() {
                let found = |value: f64, name: &str| finite(value, name, index, first * ROWS + i);
                let mut rows = rows.iter().map(|r| Distribution::of(&r[i * vocab..][..vocab]));
                let Some(ours) = rows.next() else { continue };
                scores.nll.push(found(ours.nll(*token), "the negative log-likelihood")?);
                let Some(theirs) = rows.next() else { continue };
                let nll = found(theirs.nll(*token), "the reference's negative log-likelihood")?;
                scores.reference_nll.push(nll);
                scores.kl.push(found(theirs.divergence(&ours), "the divergence")?);
                scores.top1.push(f64::from(u8::from(ours.likeliest() == theirs.likeliest())));
            }
            on_tokens(piece.len());
        }
    }
    Ok(scores)
}

fn finite(value: f64, name: &str, window: usize, position: usize) -> Result<f64> {
    if value.is_finite() {
        return Ok(value);
    }
    Err(Error::CheckFailed(format!("window {window}: position {position}: {name} is {value}")))
}

/// A row of logits as probabilities: pᵢ = exp(lᵢ − ln Σⱼ exp(lⱼ)), in f64.
#[derive(Clone, Copy, Debug)]
pub(super) struct Distribution<'a> {
    logits: &'a [f32],
    largest: f64,
    /// ln Σⱼ exp(lⱼ − largest): apart, since the sum of both loses digits of it.
    log_sum: f64,
}

impl<'a> Distribution<'a> {
    pub(super) fn of(logits: &'a [f32]) -> Self {
        let largest = logits.iter().fold(f32::NEG_INFINITY, |m, l| m.max(*l));
        let largest = f64::from(largest);
        // A NaN is no largest, but makes the sum one; so does an infinity.
        let sum: f64 = logits.iter().map(|l| (f64::from(*l) - largest).exp()).sum();
        Self { logits, largest, log_sum: sum.ln() }
    }

    fn log_probability(&self, token: usize) -> f64 {
        f64::from(self.logits[token]) - self.largest - self.log_sum
    }

    fn nll(&self, token: u32) -> f64 {
        -self.log_probability(token as usize)
    }

    /// Σᵢ pᵢ (ln pᵢ − ln qᵢ) with p these probabilities and q the `other` ones: the loss of using q
    /// where p is true.
    pub(super) fn divergence(&self, other: &Self) -> f64 {
        let term = |token: usize| {
            let log = self.log_probability(token);
            let p = log.exp();
            // A probability of 0 adds nothing, whatever the other one is.
            if p == 0.0 { 0.0 } else { p * (log - other.log_probability(token)) }
        };
        (0..self.logits.len()).map(term).sum()
    }

    /// The token of the largest logit, the first of equals.
    pub(super) fn likeliest(&self) -> usize {
        let mut best = 0;
        for (token, logit) in self.logits.iter().enumerate() {
            if *logit > self.logits[best] {
                best = token;
            }
        }
        best
    }
}

/// Summary of a text's scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quality {
    /// Negative log-likelihood a token, nats.
    pub nll: Mean,
    /// Against a reference.
    pub against: Option<Against>,
}

/// Comparison of a text's scores with those of a reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Against {
    /// The reference's negative log-likelihood a token, nats.
    pub nll: Mean,
    /// The model's excess over the reference, token by token. Its error is far below those of the
    /// two means, since a hard token is hard for both.
    pub more: Mean,
    /// Divergence a token, nats.
    pub kl: Mean,
    /// Fraction of positions at which both find the same token likeliest.
    pub top1: f64,
}

impl Scores {
    /// Means over all tokens.
    pub fn quality(&self) -> Quality {
        let pairs = self.nll.iter().zip(&self.reference_nll);
        let more: Vec<f64> = pairs.map(|(ours, theirs)| ours - theirs).collect();
        let against = (!more.is_empty()).then(|| Against {
            nll: mean(&self.reference_nll),
            more: mean(&more),
            kl: mean(&self.kl),
            top1: mean(&self.top1).mean,
        });
        Quality { nll: mean(&self.nll), against }
    }
}

impl Quality {
    /// e to the mean negative log-likelihood: the number of equally likely tokens that the model is
    /// left to choose among.
    pub fn perplexity(&self) -> f64 {
        self.nll.mean.exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        // Logits are f32: half a unit in the last place of ln 2.
        assert!((a - b).abs() < 1e-6 * (1.0 + b.abs()), "{a} is not {b}");
    }

    #[test]
    fn uniform_logits_give_the_logarithm_of_the_vocabulary() {
        for (vocab, logit) in [(1, 0.0), (7, -3.5), (4096, 88.0), (262_144, f32::MAX)] {
            let row = vec![logit; vocab];
            let distribution = Distribution::of(&row);
            close(distribution.nll(0), (vocab as f64).ln());
            close(distribution.nll(vocab as u32 - 1), (vocab as f64).ln());
            assert_eq!(distribution.likeliest(), 0);
        }
    }

    /// p = (1/2, 1/4, 1/4) and q = (1/4, 1/4, 1/2), as logits of any level:
    /// KL(p‖q) = 1/2 ln 2 + 0 − 1/4 ln 2. It is no distance: of (1/2, 1/2) and (1/4, 3/4) each has
    /// its own from the other. An impossible token counts where the other finds it possible.
    #[test]
    fn known_pairs_have_their_divergences() {
        let ln = |n: f64| n.ln();
        let p = [2f32.ln() + 5.0, 5.0, 5.0];
        let q = [-80.0, -80.0, 2f32.ln() - 80.0];
        for (p, q, expected) in [
            (&p[..], &q[..], ln(2.0) / 4.0),
            (&p, &p, 0.0),
            (&[0.0, 0.0], &[0.0, 3f32.ln()], 0.5 * ln(2.0) + 0.5 * ln(2.0 / 3.0)),
            (&[0.0, 3f32.ln()], &[0.0, 0.0], 0.25 * ln(0.5) + 0.75 * ln(1.5)),
            (&[0.0, f32::NEG_INFINITY], &[0.0, 0.0], ln(2.0)),
        ] {
            close(Distribution::of(p).divergence(&Distribution::of(q)), expected);
        }
        let (all, some) = ([0.0, 0.0], [0.0, f32::NEG_INFINITY]);
        assert_eq!(Distribution::of(&all).divergence(&Distribution::of(&some)), f64::INFINITY);
        let (p, q) = (Distribution::of(&p), Distribution::of(&q));
        close(p.nll(0), ln(2.0));
        close(q.nll(0), ln(4.0));
        assert_eq!((p.likeliest(), q.likeliest()), (0, 2));
    }

    #[test]
    fn scores_that_are_no_numbers_are_an_error() {
        let score = |row: &[f32], token| {
            let nll = Distribution::of(row).nll(token);
            let error = finite(nll, "the negative log-likelihood", 2, 7).unwrap_err();
            assert_eq!(error.exit_code(), 1);
            assert!(error.to_string().contains("window 2: position 7"), "{error}");
        };
        for wrong in [f32::NAN, f32::INFINITY] {
            for at in 0..3 {
                let mut row = [0.5, 1.0, -2.0];
                row[at] = wrong;
                (0..3).for_each(|token| score(&row, token));
            }
        }
        score(&[0.0, f32::NEG_INFINITY], 1);
    }

    #[test]
    fn a_text_is_cut_into_whole_windows() {
        let tokens: Vec<u32> = (0..11).collect();
        for (window, limit, lengths) in [
            (4, None, &[4, 4][..]),
            (11, None, &[11]),
            (1, None, &[1; 11]),
            (4, Some(100), &[4, 4]),
            (4, Some(6), &[4, 2]),
            (4, Some(3), &[3]),
            // A window that begins but need not end.
            (512, Some(11), &[11]),
        ] {
            let text = Text::new(99, &tokens, window, limit).unwrap();
            assert_eq!(text.windows().map(<[u32]>::len).collect::<Vec<_>>(), lengths);
            let windows: Vec<_> = text.windows().collect();
            assert_eq!(windows.concat(), tokens[..text.tokens()], "{window} {limit:?}");
        }
        for (window, limit) in
            [(12, None), (12, Some(12)), (512, Some(100)), (0, None), (4, Some(0))]
        {
            let error = Text::new(99, &tokens, window, limit).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{window} {limit:?}");
        }
        assert!(Text::new(99, &[], 1, None).is_err());
    }
}
