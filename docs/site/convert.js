// Turns the command line of another server into Kirsch's, by the rules of convert-rules.js (scripts/docs_site/migration.py).
"use strict";

// Returns the words of a shell's command. Each keeps its text without quotes, and whether the shell expands something.
function shellWords(line) {
  const words = [];
  let word = null;
  const add = (text, expands) => {
    word ??= { text: "", expands: false };
    word.text += text;
    word.expands ||= expands;
  };
  for (let at = 0; at < line.length; at++) {
    const char = line[at];
    if (char === "\\" && line[at + 1] === "\n") at++;
    else if (char === "\\" && at + 1 < line.length) add(line[++at], false);
    else if (/\s/.test(char)) {
      if (word) words.push(word);
      word = null;
    } else if (char === "'") {
      const end = line.indexOf("'", at + 1);
      if (end < 0) throw new Error("A quotation mark ' has no second one.");
      add(line.slice(at + 1, end), false);
      at = end;
    } else if (char === '"') {
      add("", false);
      for (at++; at < line.length && line[at] !== '"'; at++) {
        if (line[at] === "\\" && /["\\$`]/.test(line[at + 1] ?? "")) add(line[++at], false);
        else add(line[at], line[at] === "$" || line[at] === "`");
      }
      if (at >= line.length) throw new Error('A quotation mark " has no second one.');
    } else if (char === "#" && !word) {
      while (at < line.length && line[at] !== "\n") at++;
    } else add(char, char === "$" || char === "`");
  }
  if (word) words.push(word);
  return words;
}

function quoted(word) {
  if (word.expands) return `"${word.text.replace(/(["\\])/g, "\\$1")}"`;
  return /^[\w@%+=:,./-]+$/.test(word.text) ? word.text : `'${word.text.replace(/'/g, "'\\''")}'`;
}

const plain = (text) => ({ text, expands: false });

// Returns the option of a server that is spelled so: itself, or the family with the most letters.
function findOption(server, name) {
  let best = null;
  for (const each of server.options) {
    if (each.name === name) return each;
    const [start, end] = each.name.split("*");
    const fits = end !== undefined && name.startsWith(start) && name.endsWith(end);
    if (fits && (!best || each.name.length > best.name.length)) best = each;
  }
  return best && { ...best, name, takes: !server.switches.includes(name) };
}

class Conversion {
  constructor(server, rules) {
    this.server = server;
    this.rules = rules;
    this.words = [];
    this.notes = [];
    this.given = new Set();
    this.application = null;
    this.object = null;
    this.host = null;
    this.port = null;
    this.unix = null;
    this.mode = null;
    this.listens = false;
  }

  note(option, result, say) {
    this.notes.push({ option, result, say });
  }

  // Takes the option `name` with `value`, which is null for a switch.
  option(name, value) {
    this.given.add(name);
    const option = findOption(this.server, name);
    const shown = value ? `${name} ${quoted(value)}` : name;
    if (!option) return this.note(shown, "left out", "no option of that server is called so");
    const before = this.words.length;
    const handled = this[`take_${option.kind}`](option, value);
    const words = this.words.slice(before).map(quoted).join(" ");
    if (option.kind === "omit") this.note(shown, "left out", option.say);
    else if (option.kind === "hand" || handled === false) this.note(shown, "by hand", option.say);
    else if (handled === this.rules.asyncio) this.note(shown, words || "left out", words ? "" : option.flag === "--http" ? option.say : handled);
    else this.note(shown, words || handled, option.say);
  }

  take_omit() {}
  take_hand() {}

  take_set(option, value) {
    const values = option.values;
    if (values && value && value.text.toLowerCase() in values) {
      this.words.push(...shellWords(values[value.text.toLowerCase()]));
      return this.rules.asyncio;
    }
    const takes = this.rules.flags[option.flag];
    if (takes && !value) return false;
    const unit = option.unit && /^\d+$/.test(value?.text ?? "") ? option.unit : "";
    this.words.push(plain(option.flag));
    if (takes) this.words.push({ ...value, text: value.text + unit });
    return true;
  }

  take_fixed(option) {
    this.words.push(plain(option.flag), plain(option.value));
  }

  take_bind(option, value) {
    let text = value.text;
    const path = option.value.match(/^(.*?)(unix:)?PATH/);
    if (option.value === "fd://N") text = `fd://${text}`;
    else if (path && (/\/|^@/.test(text) || !/:|^\d+$/.test(text))) text = `${path[1]}unix:${text.replace(/^unix:/, "")}`;
    else text = `${path ? path[1] : ""}${text.replace(/^\*?:/, "0.0.0.0:")}`;
    if (/^\d+$/.test(text)) text = `0.0.0.0:${text}`;
    this.listens = true;
    this.words.push(plain("--bind"), { ...value, text });
    if (text.includes("unix:")) this.unix = this.words[this.words.length - 1];
  }

  take_mode(option, value) {
    this.mode = value ?? plain("666");
    return "?mode= of --bind";
  }

  take_host(option, value) {
    this.host = value;
    return "--bind";
  }

  take_port(option, value) {
    this.port = value;
    return "--bind";
  }

  take_name(option, value) {
    this.application = value;
    return quoted(value);
  }

  take_object(option, value) {
    this.object = value;
    return `:${value.text}`;
  }

  // Returns the name of a script as Kirsch takes it.
  file(word) {
    const path = word.text.includes("/") ? word.text : `./${word.text}`;
    if (path.endsWith(".py")) return { ...word, text: path };
    const renamed = path.replace(/(\.\w+)?$/, ".py");
    this.note(word.text, "look", `Kirsch serves files whose names end in .py: rename it to ${renamed}, or write module:object.`);
    return { ...word, text: renamed };
  }

  // Returns the words of the new command.
  finish() {
    const [host, port] = this.server.address;
    if (this.host || this.port || (this.server.listens_elsewhere && !this.listens)) {
      const name = this.host?.text ?? host;
      const text = `${name.includes(":") ? `[${name}]` : name}:${this.port?.text ?? port}`;
      this.words.unshift(plain("--bind"), { text, expands: Boolean(this.host?.expands || this.port?.expands) });
    }
    if (this.mode && this.unix) this.unix.text += `?mode=${this.mode.text}`;
    const remark = this.server.remark;
    if (remark && !remark.unless.some((name) => this.given.has(name))) this.note("", "look", remark.say);
    if (!this.application) {
      this.note("", "look", "The command names no application: write it in place of module:app.");
      this.application = plain("module:app");
    }
    if (this.object && !this.application.text.includes(":")) this.application.text += `:${this.object.text}`;
    return [...this.words, this.application];
  }
}

// Returns { command, notes } for the command line of another server; throws an Error with a sentence for its reader.
function convert(line, rules) {
  const words = shellWords(line.replace(/^\s*(?:\$|#|ExecStart=|web:)\s*/, ""));
  const at = words.findIndex((word) => word.text.replace(/^.*\//, "") in rules.programs);
  if (at < 0) throw new Error(`The command names none of ${Object.keys(rules.servers).join(", ")}.`);
  const name = rules.programs[words[at].text.replace(/^.*\//, "")];
  const server = rules.servers[name];
  const conversion = new Conversion(server, rules);
  let rest = words.slice(at + 1);
  if (server.subcommand && rest[0]?.text === server.subcommand) rest = rest.slice(1);
  while (rest.length) {
    const word = rest.shift();
    if (word.text === "--") continue;
    if (!word.text.startsWith("-")) {
      conversion.application ??= server.takes_files ? conversion.file(word) : word;
      continue;
    }
    // --name=VALUE, or -nVALUE
    const [, option, value] = word.text.match(/^(--[^=]*|-[^])(?:=?([^]+))?$/) ?? [null, word.text];
    let given = value === undefined ? null : { ...word, text: value };
    const known = findOption(server, option);
    // An option that no table has takes the next word if that is not the last one, which is probably the application.
    const takes = known ? known.takes : rest.length > 1 && !rest[0].text.startsWith("-");
    if (!given && takes) {
      if (!rest.length) throw new Error(`${option} has no value.`);
      given = rest.shift();
    }
    conversion.option(option, given);
  }
  const before = words.slice(0, at).map((word) => {
    const [, name, value] = word.text.match(/^(\w+=)([^]*)$/) ?? [null, "", word.text];
    return name + quoted({ ...word, text: value });
  });
  const program = words[at].text.replace(/[^/]+$/, "kirsch");
  return { command: [...before, program, ...conversion.finish().map(quoted)].join(" "), notes: conversion.notes };
}

// Returns the command in lines of at most 76 characters, as a shell continues them.
function wrapped(command) {
  const words = command.match(/(?:'[^']*'|"(?:\\.|[^"\\])*"|[^\s'"])+/g) ?? [];
  const lines = [""];
  words.forEach((word, index) => {
    const together = word.startsWith("-") && words[index + 1] && !words[index + 1].startsWith("-") ? ` ${words[index + 1]}` : "";
    const last = lines[lines.length - 1];
    if (last && (last + word + together).length > 74) lines.push(`    ${word}`);
    else lines[lines.length - 1] = last ? `${last} ${word}` : word;
  });
  return lines.join(" \\\n");
}

function show() {
  const ours = document.getElementById("ours");
  const became = document.getElementById("became");
  became.replaceChildren();
  try {
    const { command, notes } = convert(document.getElementById("theirs").value, window.CONVERT_RULES);
    ours.textContent = wrapped(command);
    ours.classList.remove("wrong");
    const table = Object.assign(document.createElement("table"), { className: "became" });
    for (const { option, result, say } of notes) {
      const row = table.insertRow();
      row.className = result.replace(" ", "-");
      const cells = [option, result, say].map(() => row.insertCell());
      cells[0].append(Object.assign(document.createElement(option ? "code" : "span"), { textContent: option }));
      const words = ["left out", "by hand", "look"].includes(result);
      cells[1].append(Object.assign(document.createElement(words ? "strong" : "code"), { textContent: result }));
      cells[2].textContent = say;
    }
    became.append(table);
  } catch (error) {
    ours.textContent = error.message;
    ours.classList.add("wrong");
  }
}

if (typeof document === "undefined") module.exports = { convert, wrapped };
else {
  document.getElementById("theirs").addEventListener("input", show);
  show();
}
