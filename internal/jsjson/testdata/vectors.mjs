// Writes test vectors for package jsjson: what this Node makes of a JSON text.
//
//   node vectors.mjs > vectors.jsonl            the vectors kept beside this file
//   node vectors.mjs COUNT SEED > more.jsonl    COUNT random ones (see TestVectors)
//
// One object a line. Strings hold bytes, one code unit each: "in" is the text,
// "out" is JSON.stringify(JSON.parse(text)); without "out" JSON.parse refused.

const [count, seed] = process.argv.length > 2 ? process.argv.slice(2).map(Number) : [600, 1];
const fixed = process.argv.length <= 2;

// mulberry32: the same cases on every machine.
let state = seed >>> 0;
function random() {
  state = (state + 0x6d2b79f5) >>> 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
const below = (n) => Math.floor(random() * n);
const pick = (list) => list[below(list.length)];
const times = (n, f) => Array.from({ length: n }, (_, i) => f(i));

const view = new DataView(new ArrayBuffer(8));
function double() {
  view.setUint32(0, below(4294967296));
  view.setUint32(4, below(4294967296));
  const f = view.getFloat64(0);
  return Number.isFinite(f) ? f : 1;
}

function number() {
  const digits = (n) => times(n, () => below(10)).join("");
  switch (below(12)) {
    case 0: return String(below(100));
    case 1: return "-" + below(100000);
    case 2: return String(double());
    case 3: return double().toExponential(below(20)).replace("e", pick(["e", "E"]));
    case 4: return pick(["-", ""]) + "0" + pick(["", ".0", ".000", "e5", "e-5", "E+0"]);
    case 5: return (1 + below(9)) + digits(below(30));
    case 6: return below(1000) + "." + digits(1 + below(25));
    case 7: return "0." + "0".repeat(below(10)) + digits(1 + below(20));
    case 8: return (1 + below(9)) + "." + digits(1 + below(18)) + "e" + pick(["", "+", "-"]) + below(330);
    case 9: return "1e" + (300 + below(20));
    case 10: return pick(["-", ""]) + (9007199254740990 + below(20));
    default: return digits(1 + below(3)) + pick(["", ".", ".5", "e", "e+", "e-3", "-"]);
  }
}

const hex = (u) => u.toString(16).padStart(4, "0");
function unit() {
  switch (below(14)) {
    case 0: return Buffer.from("\\u" + hex(below(65536)));
    case 1: return Buffer.from("\\u" + hex(0xd800 + below(2048)));
    case 2: return Buffer.from("\\u" + hex(0xd800 + below(1024)) + "\\u" + hex(0xdc00 + below(1024)));
    case 3: return Buffer.from("\\u" + hex(below(65536)).toUpperCase());
    case 4: return Buffer.from("\\" + pick([..."\"\\/bfnrt"]));
    case 5: return Buffer.from("\\u00" + hex(below(128)).slice(2));
    case 6: return Buffer.from(String.fromCodePoint(pick([0x7f, 0x80, 0xe9, 0x7ff, 0x2028, 0xfeff, 0xffff, 0x1f600, 0x10ffff])));
    case 7: return Buffer.from(pick(["日本語", "ü", "<&>", "\u2029", "😀"]));
    case 8: return below(3) ? Buffer.from("x") : Buffer.from(times(1 + below(4), () => below(4) ? 0x80 + below(128) : pick([0xe0, 0xed, 0xf0, 0xf4, 0xef, 0xbf, 0xc0, 0xc2])));
    default: return Buffer.from(pick(["a", "b", "type", "seq", " ", "0", "1", "hello world ", "x".repeat(below(20))]));
  }
}
const string = (n) => Buffer.concat([Buffer.from('"'), ...times(below(n), unit), Buffer.from('"')]);

function key() {
  switch (below(5)) {
    case 0: return Buffer.from('"' + pick(["0", "1", "2", "10", "9", "01", "-0", "-1", "1.5", "1e3", "4294967294", "4294967295", "4294967296", "99999999999", "00"]) + '"');
    case 1: return Buffer.from('"' + pick(["\\u0061", "\\u0074ype", "\\u0031", "1\\u0030", "\\n", "\\u000a", "\\u000A", "\\ud800", "\\uD800"]) + '"');
    case 2: return Buffer.from('"' + pick(["a", "b", "type", "__proto__", "constructor", "toString", "length", ""]) + '"');
    default: return string(3);
  }
}

let loose = false; // white space between tokens
const gap = () => Buffer.from(loose && below(3) === 0 ? pick([" ", "\n", "\t", "\r\n", "  "]) : "");
function value(depth) {
  const list = (open, close, item) =>
    Buffer.concat([Buffer.from(open), gap(), ...times(below(6), (i) => Buffer.concat([Buffer.from(i ? "," : ""), gap(), item(), gap()])), Buffer.from(close)]);
  switch (depth > 0 ? below(9) : 4 + below(5)) {
    case 0: case 1: case 2:
      return list("{", "}", () => Buffer.concat([key(), gap(), Buffer.from(":"), gap(), value(depth - 1)]));
    case 3: return list("[", "]", () => value(depth - 1));
    case 4: return Buffer.from(pick(["true", "false", "null"]));
    case 5: case 6: return Buffer.from(number());
    default: return string(8);
  }
}

const noise = ["\"", "\\", "{", "}", "[", "]", ",", ":", "0", "-", "e", ".", "\\u", "\\ud83d", "\ufeff", "\0", "\x1f", " ", "\n", "\x0b", "\xa0", "u", "t", "//"];
function mutate(b) {
  b = Buffer.from(b);
  for (let n = 1 + below(2); n > 0; n--) {
    const at = below(b.length + 1), end = Math.min(b.length, at + below(3));
    const put = below(4) ? (below(3) ? Buffer.from(pick(noise)) : Buffer.from([below(256)])) : Buffer.from("");
    b = Buffer.concat([b.subarray(0, at), put, b.subarray(end)]);
  }
  return below(20) ? b : b.subarray(0, below(b.length));
}

const bytes = (b) => JSON.stringify(b.toString("latin1")).replace(/[\x7f-\xff]/g, (c) => "\\u" + hex(c.charCodeAt(0)));
const lines = [];
function emit(b) {
  let line = `{"in":${bytes(b)}`;
  try {
    line += `,"out":${bytes(Buffer.from(JSON.stringify(JSON.parse(b.toString("utf8")))))}`;
  } catch {}
  lines.push(line + "}");
}

if (fixed) {
  for (const s of [
    "", " ", "null", "true", "false", "nul", "nulll", "True", "NaN", "Infinity", "undefined", "+1", "01", "-01", "1.", ".5", "1e", "1e+", "-", "--1", "0x1",
    "[]", "{}", "[,]", "[1,]", "[1 2]", "[1,,2]", "{,}", '{"a"}', '{"a":}', '{"a":1,}', '{"a":1 "b":2}', "{a:1}", "{'a':1}", "[1}", '{"a":1]', "]", "}", "[", "{", '{"a"', '{"a":', '{"a":1', '{"a":1,', "[1", "[1,",
    "1 2", "null null", "[]x", "// x\n1", "/**/1", "\ufeff1", "1\ufeff", "\xa01", "\u20281", "\v1", "\f1", "\0", "1\0", '"', '"\\', '"\\u', '"\\u1', '"\\x41"', '"\\a"', '"\\u00g0"', '"\\ud83d\\u"', '"\\ud83d\\ud83d\\ude00"', '"\t"', '"\n"', '"\x1f"', '"\x7f"',
    '{"a":1,"b":2,"a":3}', '{"type":1,"\\u0074ype":2}', '{"\\u0031":1,"0":2}', '{"b":1,"10":2,"2":3,"a":4,"-1":5,"01":6,"4294967294":7,"4294967295":8}', '{"x":1,"__proto__":{"a":1}}', '{"__proto__":1,"__proto__":2,"constructor":3}', '{"":1,"":2}', '{"1":{"b":1,"0":{"b":1,"0":2}},"0":1}', '{"a":{"2":1,"1":2},"b":[{"2":1,"1":2}],"a":{"4":1,"3":2}}',
    "1e400", "-1e400", "1e-400", "-1e-400", "-0", "-0.0", "-0e5", "0e99999999999999999999", "1e99999999999999999999", "1e-99999999999999999999", "5e-324", "2e-324", "3e-324", "1.7976931348623157e308", "1.7976931348623158e308", "1.7976931348623159e308", "9007199254740993", "123456789012345678901", "999999999999999900000", "1e21", "1E21", "100000000000000000000", "1000000000000000000000", "0.000001", "0.0000001", "1e-6", "1e-7", "0.1", "0.10", "0.1000000000000000055511151231257827", "4.35", "2.2250738585072011e-308", "0.30000000000000004", "1.0", "10.0e1",
    "0." + "0".repeat(200000) + "1e200001", "1" + "0".repeat(100000) + "e-100000", "0." + "0".repeat(400) + "1e401", "1" + "0".repeat(400), "1" + "0".repeat(400) + "e-400", "9".repeat(800), "0." + "9".repeat(800), "2.22507385850720138309" + "0".repeat(780) + "1e-308", "1e00000000000000000000000001", "1e-00000000000000000000000007",
  ]) if (s.length < 5000) emit(Buffer.from(s));
  for (const b of [[34, 237, 160, 128, 34], [34, 255, 34], [34, 240, 159, 152, 34], [34, 192, 128, 34], [34, 226, 130, 65, 34], [255], [49, 255], [34, 226, 130], [34, 226, 130, 34], [34, 244, 144, 128, 128, 34], [34, 237, 159, 191, 237, 160, 34], [34, 240, 143, 128, 34], [34, 92, 255, 34], [34, 92, 117, 237, 34]]) emit(Buffer.from(b));
  emit(Buffer.concat([Buffer.from('{"'), Buffer.from([255]), Buffer.from('":1,"'), Buffer.from([254]), Buffer.from('":2,"\\ufffd":3}')]));
  for (let e = -324; e <= 309; e += 3) for (const m of ["1", "1.5"]) emit(Buffer.from(m + "e" + e));
}
for (let n = 0; n < count; n++) {
  loose = below(3) === 0;
  const b = value(below(5));
  emit(below(3) ? b : mutate(b));
}
process.stdout.on("error", () => process.exit(1));
process.stdout.write(lines.join("\n") + "\n");
