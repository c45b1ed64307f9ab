// Text to tokens by the tables of a plan (harness/model/src/tokenizer/tables.rs): byte-level BPE, which
// merges by rank, or SentencePiece, which merges by score.
import { Refusal } from './engine.js';

/** GPT-2's alphabet, a character per byte. */
function alphabet() {
  let other = 0x100;
  const printable = (byte) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte !== 173);
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(printable(byte) ? byte : other++));
}

/** Entries `[rank, position, …]`, the least first. */
class Queue {
  constructor() {
    this.all = [];
  }

  isBefore(a, b) {
    const [x, y] = [this.all[a], this.all[b]];
    return x[0] < y[0] || (x[0] === y[0] && x[1] < y[1]);
  }

  swap(a, b) {
    [this.all[a], this.all[b]] = [this.all[b], this.all[a]];
  }

  push(entry) {
    let at = this.all.push(entry) - 1;
    for (let up; at > 0 && this.isBefore(at, (up = (at - 1) >> 1)); at = up) this.swap(at, up);
  }

  pop() {
    const last = this.all.length - 1;
    this.swap(0, last);
    const least = this.all.pop();
    for (let at = 0, next; ; at = next) {
      next = 2 * at + 1;
      if (next >= last) return least;
      if (next + 1 < last && this.isBefore(next + 1, next)) next++;
      if (!this.isBefore(next, at)) return least;
      this.swap(at, next);
    }
  }
}

/** Merges neighbours, the pair of the least rank first, of equal ones the leftmost. `pair(a, b)` is its rank and result. */
function merged(parts, pair) {
  const next = parts.map((_, at) => at + 1), before = parts.map((_, at) => at - 1), value = [...parts], queue = new Queue();
  const offer = (left) => {
    const right = next[left];
    if (left < 0 || right >= value.length) return;
    const found = pair(value[left], value[right]);
    if (found) queue.push([found[0], left, right, value[left], value[right], found[1]]);
  };
  for (let at = 0; at < value.length; at++) offer(at);
  while (queue.all.length) {
    const [, left, right, first, second, result] = queue.pop();
    // One of the two may have become part of another meanwhile.
    if (value[left] !== first || next[left] !== right || value[right] !== second) continue;
    value[left] = result;
    value[right] = undefined;
    next[left] = next[right];
    if (next[left] < value.length) before[next[left]] = left;
    offer(left);
    if (before[left] >= 0) offer(before[left]);
  }
  return value.filter((part) => part !== undefined);
}

/** Matches in a text and the parts between them, each with true for a match. */
function split(text, pattern) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > end) parts.push([text.slice(end, match.index), false]);
    if (match[0]) parts.push([match[0], true]);
    end = match.index + match[0].length;
  }
  if (end < text.length) parts.push([text.slice(end), false]);
  return parts;
}

export class Tokenizer {
  /** The tokenizer of a range of the plan's bytes. */
  static async of(data, range) {
    const own = new Tokenizer(), tables = JSON.parse(new TextDecoder().decode(await data.read(range)));
    const literals = [...tables.literals].sort(([a], [b]) => b.length - a.length);
    const escaped = literals.map(([text]) => text.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&'));
    Object.assign(own, tables, {
      literals: new Map(literals), literal: literals.length ? new RegExp(escaped.join('|'), 'gu') : null,
      byPiece: new Map(tables.pieces.map((piece, at) => [piece, at])), characters: alphabet(), encoder: new TextEncoder(),
    });
    if (tables.merges_by === 'rank') {
      own.pairs = new Map(tables.merges.map(([left, right], rank) => [left * 2 ** 26 + right, rank]));
      own.pieceOf = new Map(tables.ids.map((id, at) => [id, tables.pieces[at]]));
      own.patterns = tables.words.map((pattern) => new RegExp(pattern, 'gu'));
    }
    return own;
  }

  /** Tokens of a text, with those that the vocabulary puts around it. */
  encode(text) {
    const ids = [];
    for (const [part, isLiteral] of this.literal ? split(text, this.literal) : text ? [[text, false]] : []) {
      const own = isLiteral ? [this.literals.get(part)] : this.merges_by === 'rank' ? this.byRank(part) : this.byScore(part);
      for (const id of own) ids.push(id);
    }
    // A BOS or EOS that the text spells already is not added again.
    const [before, after] = this.around;
    if (before.length && ids[0] === before[before.length - 1]) ids.shift();
    if (after.length && ids[ids.length - 1] === after[0]) ids.pop();
    return [...before, ...ids, ...after];
  }

  byRank(text) {
    let words = [this.composes ? text.normalize('NFC') : text];
    for (const pattern of this.patterns) words = words.flatMap((word) => split(word, pattern).map(([part]) => part));
    return words.flatMap((word) => {
      const characters = Array.from(this.encoder.encode(word), (byte) => this.characters[byte]);
      const whole = this.whole_words ? this.byPiece.get(characters.join('')) : undefined;
      if (whole !== undefined) return [this.ids[whole]];
      const ids = characters.map((c) => this.ids[this.byPiece.get(c)]).filter((id) => id !== undefined);
      return merged(ids, (left, right) => {
        const rank = this.pairs.get(left * 2 ** 26 + right);
        return rank === undefined ? null : [rank, this.ids[this.byPiece.get(this.pieceOf.get(left) + this.pieceOf.get(right))]];
      });
    });
  }

  byScore(text) {
    const spaced = (this.prefix ? '▁' : '') + text.replaceAll(' ', '▁');
    const parts = merged([...spaced], (left, right) => {
      const at = this.byPiece.get(left + right);
      return at === undefined ? null : [this.places[at], left + right];
    });
    return parts.flatMap((part) => {
      const at = this.byPiece.get(part);
      if (at !== undefined) return [this.ids[at]];
      const bytes = Array.from(this.encoder.encode(part), (byte) => this.bytes[byte]);
      if (bytes.every((id) => id !== null)) return bytes;
      if (this.unknown === null) throw new Refusal(`The vocabulary has no token for “${part}”.`);
      return [this.unknown];
    });
  }
}
