"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const one = (query, from = document) => from.querySelector(query);
  const all = (query, from = document) => [...from.querySelectorAll(query)];
  const tip = one("#tip");

  const tell = (text, x, y) => {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = (y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18) + "px";
  };
  const hush = () => { tip.hidden = true; };

  // Titles inside pictures are told at once; for a reader of the page they stay as labels.
  for (const title of all("main svg g > title, main svg rect > title")) {
    title.parentNode.setAttribute("aria-label", title.textContent);
    title.parentNode.dataset.tip = title.textContent;
    title.remove();
  }
  document.addEventListener("pointermove", event => {
    const at = event.target.closest && event.target.closest("[data-tip]");
    const mesh = at && at.closest(".mesh svg");
    const beside = mesh ? mesh.getBoundingClientRect().right : 0;  // beside a small mesh, so that it hides no rank
    if (at) tell(at.dataset.tip, mesh && beside + 260 < innerWidth ? beside : event.clientX, event.clientY);
    else if (!event.target.closest || !event.target.closest(".timeline")) hush();
  });
  document.addEventListener("wheel", hush, { passive: true });

  // Ranks

  const axes = data.axes;
  const coordinate = rank => {
    const found = [];
    for (let i = axes.length - 1; i >= 0; i--) {
      found[i] = rank % axes[i][1];
      rank = Math.floor(rank / axes[i][1]);
    }
    return found;
  };
  const rankAt = places => places.reduce((found, place, i) => found * axes[i][1] + place, 0);
  const cells = all(".mesh .rank").map(node => ({ node, rank: +node.dataset.r, at: coordinate(+node.dataset.r) }));
  const shards = all(".shard").map(node => {
    const figure = node.closest("figure");
    const held = figure.dataset.held ? figure.dataset.held.split(" ").map(Number) : null;
    const where = (node.dataset.c || "").split(" ").filter(Boolean).map(text => text.split(":").map(Number));
    return { node, held, where };
  });
  const input = one("#rank");
  let picked = 0, locked = -1;

  const members = (rank, index) => {
    const at = coordinate(rank), size = axes[index][1], found = [];
    for (let place = 0; place < size; place++) {
      if (size > 16 && place >= 8 && place < size - 1) {
        if (place === 8) found.push("\u2026");
        continue;
      }
      found.push(rankAt(at.map((old, i) => i === index ? place : old)));
    }
    return found.join(" ");
  };
  const describe = rank => {
    const at = coordinate(rank);
    const node = data.node ? `, node ${Math.floor(rank / data.node)}` : "";
    return [`rank ${rank}${node}`, ...axes.map((axis, i) => `${axis[0]} ${at[i]}: ${members(rank, i)}`)].join("\n");
  };
  const mark = rank => {
    const at = coordinate(rank);
    for (const cell of cells) {
      const apart = cell.at.map((place, i) => place === at[i] ? -1 : i).filter(i => i >= 0);
      const word = cell.rank === rank ? " here" : apart.length === 1 ? ` on${apart[0] % 8}` : "";
      cell.node.setAttribute("class", "rank" + word);
    }
  };
  const paint = index => {
    for (const cell of cells) {
      const group = rankAt(cell.at.map((place, i) => i === index ? 0 : place));
      const inner = axes.slice(index + 1).reduce((size, axis) => size * axis[1], 1);
      const number = Math.floor(group / (inner * axes[index][1])) * inner + group % inner;
      cell.node.setAttribute("class", `rank p${number % 8}`);
    }
    const ranks = axes.reduce((size, axis) => size * axis[1], 1);
    one("#groups").textContent = `${axes[index][0]}: ${ranks / axes[index][1]} groups of ${axes[index][1]} ranks; one colour, one group` +
      (ranks / axes[index][1] > 8 ? " (eight colours in turn)" : "");
  };
  const show = () => {
    if (locked >= 0) { paint(locked); return; }
    mark(picked);
    one("#groups").textContent = describe(picked).replace(/\n/g, "; ");
  };
  const pick = (rank, shade = true) => {
    const last = +input.max;
    picked = Math.max(0, Math.min(last, Number.isFinite(rank) ? Math.floor(rank) : 0));
    input.value = picked;
    show();
    const at = coordinate(picked);
    for (const shard of shards) {
      const mine = shard.where.every(([axis, place]) => at[axis] === place) &&
        (!shard.held || shard.held.slice(1).includes(at[shard.held[0]]));
      shard.node.classList.toggle("mine", shade && mine);
    }
    for (const gallery of all(".gallery")) gallery.classList.toggle("picked", shade);
  };
  input.addEventListener("input", () => { if (input.value !== "") pick(+input.value); });

  const roam = cell => {
    for (const other of cells) other.node.setAttribute("tabindex", other === cell ? 0 : -1);
  };
  if (cells.length) roam(cells[0]);
  for (const cell of cells) {
    cell.node.setAttribute("role", "button");
    cell.node.dataset.tip = describe(cell.rank);
    cell.node.addEventListener("pointerenter", () => { if (locked < 0) mark(cell.rank); });
    cell.node.addEventListener("pointerleave", () => { if (locked < 0) mark(picked); });
    cell.node.addEventListener("click", () => { roam(cell); pick(cell.rank); });
    cell.node.addEventListener("focus", () => { if (locked < 0) mark(cell.rank); });
    cell.node.addEventListener("keydown", event => {
      const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(cell.rank); }
      if (!way) return;
      event.preventDefault();
      const here = cell.node.getBoundingClientRect();
      let best = null, least = Infinity;
      for (const other of cells) {
        const box = other.node.getBoundingClientRect();
        const along = (box.x - here.x) * way[0] + (box.y - here.y) * way[1];
        const aside = Math.abs((box.x - here.x) * way[1]) + Math.abs((box.y - here.y) * way[0]);
        if (along > 2 && along + 4 * aside < least) { least = along + 4 * aside; best = other; }
      }
      if (best) { roam(best); best.node.focus(); pick(best.rank); }
    });
  }
  for (const button of all("button[data-axis]")) {
    const index = +button.dataset.axis;
    const leave = () => show();
    button.addEventListener("pointerenter", () => paint(index));
    button.addEventListener("focus", () => paint(index));
    button.addEventListener("pointerleave", leave);
    button.addEventListener("blur", leave);
    button.addEventListener("click", () => {
      locked = locked === index ? -1 : index;
      for (const other of all("button[data-axis]")) other.setAttribute("aria-pressed", +other.dataset.axis === locked);
      show();
    });
  }

  // The timeline

  const timeline = data.timeline, frame = one(".timeline");
  if (timeline && frame) {
    const picture = one("svg", frame), svg = "http://www.w3.org/2000/svg";
    const layers = all(".x", picture), labels = one(".labels", picture), marks = one(".ticks", picture);
    const curves = all(".curve", picture);
    const most = Math.max(1, timeline.makespan);
    const kinds = ["forward", "backward", "gradient of inputs", "gradients of weights"];
    let from = 0, span = timeline.makespan, at = null;
    const cursor = document.createElementNS(svg, "rect");
    cursor.setAttribute("class", "cursor");
    cursor.setAttribute("visibility", "hidden");
    picture.append(cursor);
    const x = time => timeline.left + (time - from) / span * timeline.wide;
    const text = (parent, left, top, words, name) => {
      const node = document.createElementNS(svg, "text");
      node.setAttribute("x", left.toFixed(2));
      node.setAttribute("y", top.toFixed(2));
      node.setAttribute("class", name);
      node.textContent = words;
      parent.append(node);
    };
    // Names, where they have room: looked for among the operations in sight only.
    const first = (row, time) => {
      let low = 0, high = row.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (row[middle][6] <= time) low = middle + 1; else high = middle;
      }
      return low;
    };
    const name = () => {
      labels.replaceChildren();
      if (timeline.row < 14) return;
      let written = 0;
      timeline.rows.forEach((row, rank) => {
        for (let i = first(row, from); i < row.length && row[i][5] < from + span && written < 3000; i++) {
          const [, , sequence, subsequence, stage, start, end] = row[i];
          const left = Math.max(x(start), timeline.left), right = Math.min(x(end), timeline.left + timeline.wide);
          const brief = timeline.parts ? `${sequence}.${subsequence}` : `${sequence}`;
          const long = `${brief} @${stage}`;
          const words = right - left > 5.8 * long.length + 6 ? long : brief;
          if (right - left > 5.8 * words.length + 3) {
            text(labels, (left + right) / 2, timeline.top + timeline.row * (rank + .5) + 4, words, "mono small mid on-op");
            written++;
          }
        }
      });
    };
    const scale = () => {
      marks.replaceChildren();
      const step = [1, 2, 5, 10].map(m => m * 10 ** Math.floor(Math.log10(span / 8))).find(s => span / s <= 14) || span;
      for (let t = Math.ceil(from / step - 1e-9) * step; t <= from + span * (1 + 1e-9); t += step) {
        const mark = document.createElementNS(svg, "path");
        mark.setAttribute("d", `M${x(t).toFixed(2)} ${timeline.bottom}v4`);
        mark.setAttribute("class", "axis");
        marks.append(mark);
        text(marks, x(t), timeline.bottom + 16, String(+t.toPrecision(6)), "small mid quiet");
      }
    };
    const place = () => {
      if (!at) { cursor.setAttribute("visibility", "hidden"); return; }
      const [rank, index] = at, op = timeline.rows[rank][index];
      const left = Math.max(x(op[5]), timeline.left), right = Math.min(x(op[6]), timeline.left + timeline.wide);
      cursor.setAttribute("visibility", right > left ? "visible" : "hidden");
      cursor.setAttribute("x", left);
      cursor.setAttribute("width", Math.max(1, right - left));
      cursor.setAttribute("y", timeline.top + timeline.row * rank);
      cursor.setAttribute("height", timeline.row);
    };
    let asked = false;
    const draw = () => {
      if (asked) return;
      asked = true;
      requestAnimationFrame(() => {
        asked = false;
        const k = timeline.makespan / span;
        for (const layer of layers) {
          layer.setAttribute("transform", `translate(${(timeline.left - k * timeline.left - from / span * timeline.wide).toFixed(3)} 0) scale(${k.toFixed(5)} 1)`);
          layer.classList.toggle("dense", timeline.usual * k < timeline.dense);
        }
        picture.dataset.zoom = k.toFixed(3);
        name();
        scale();
        place();
      });
    };
    const zoom = (factor, middle = from + span / 2) => {
      const next = Math.min(timeline.makespan, Math.max(timeline.makespan / 400, span / factor));
      from = Math.min(timeline.makespan - next, Math.max(0, middle - (middle - from) * next / span));
      span = next;
      draw();
    };
    const pan = by => { from = Math.min(timeline.makespan - span, Math.max(0, from + by)); draw(); };
    const here = event => {
      const box = picture.getBoundingClientRect(), view = picture.viewBox.baseVal;
      return [(event.clientX - box.x) * view.width / box.width, (event.clientY - box.y) * view.height / box.height];
    };
    const time = left => from + (left - timeline.left) / timeline.wide * span;
    const holds = (rank, when) => timeline.held[rank].reduce((found, [t, v]) => t <= when + 1e-9 ? v : found, 0);
    const said = (rank, index) => {
      const [kind, replica, sequence, subsequence, stage, start, end] = timeline.rows[rank][index];
      const lines = [kinds[kind] + (replica ? ", second replica" : ""), `${timeline.axis} ${rank}, stage ${stage}`, `sequence ${sequence}` + (timeline.parts ? `, subsequence ${subsequence}` : "")];
      lines.push(`${+start.toPrecision(6)} to ${+end.toPrecision(6)}`, `held then: ${+holds(rank, start).toPrecision(4)}`);
      return lines.join("\n");
    };
    const top = rank => {
      for (const curve of curves) {
        const mine = +curve.dataset.rank === rank;
        if (mine && !curve.classList.contains("top")) curve.parentNode.append(curve);
        curve.classList.toggle("top", mine);
      }
    };
    const visit = (rank, index) => {
      at = [rank, index];
      const op = timeline.rows[rank][index];
      if (op[5] < from || op[6] > from + span) from = Math.min(timeline.makespan - span, Math.max(0, op[5] - span / 3));
      top(rank);
      draw();
      const box = picture.getBoundingClientRect(), size = box.width / picture.viewBox.baseVal.width;
      tell(said(rank, index), box.x + x(op[5]) * size, box.y + (timeline.top + timeline.row * (rank + 1)) * size);
    };
    let drag = null;
    picture.addEventListener("pointerdown", event => { drag = [event.clientX, from]; picture.setPointerCapture(event.pointerId); });
    picture.addEventListener("pointerup", () => { drag = null; });
    picture.addEventListener("pointercancel", () => { drag = null; });
    picture.addEventListener("pointermove", event => {
      if (drag && Math.abs(event.clientX - drag[0]) > 2) {
        const size = picture.viewBox.baseVal.width / picture.getBoundingClientRect().width;
        from = Math.min(timeline.makespan - span, Math.max(0, drag[1] - (event.clientX - drag[0]) * size / timeline.wide * span));
        hush();
        draw();
        return;
      }
      const [left, down] = here(event), rank = Math.floor((down - timeline.top) / timeline.row);
      const row = timeline.rows[rank], when = time(left), index = row ? first(row, when) : -1;
      if (row && left >= timeline.left && index < row.length && row[index][5] <= when) {
        at = [rank, index];
        top(rank);
        place();
        tell(said(rank, index), event.clientX, event.clientY);
      } else hush();
    });
    picture.addEventListener("pointerleave", () => { drag = null; hush(); });
    picture.addEventListener("dblclick", event => zoom(2, time(here(event)[0])));
    picture.addEventListener("wheel", event => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(Math.exp(-event.deltaY / 240), time(here(event)[0]));
    }, { passive: false });
    for (const button of all("button[data-zoom]")) {
      button.addEventListener("click", () => zoom({ in: 2, out: .5, all: 1e-9 }[button.dataset.zoom]));
    }
    frame.addEventListener("keydown", event => {
      const size = span / 10;
      const near = (rank, when) => Math.min(timeline.rows[rank].length - 1, first(timeline.rows[rank], when));
      const moves = {
        "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), "0": () => zoom(1e-9),
        ArrowLeft: () => event.shiftKey ? pan(-size) : at ? visit(at[0], Math.max(0, at[1] - 1)) : visit(0, 0),
        ArrowRight: () => event.shiftKey ? pan(size) : at ? visit(at[0], Math.min(timeline.rows[at[0]].length - 1, at[1] + 1)) : visit(0, 0),
        ArrowUp: () => { const r = Math.max(0, at ? at[0] - 1 : 0); visit(r, at ? near(r, timeline.rows[at[0]][at[1]][5]) : 0); },
        ArrowDown: () => { const r = Math.min(timeline.rows.length - 1, at ? at[0] + 1 : 0); visit(r, at ? near(r, timeline.rows[at[0]][at[1]][5]) : 0); },
      };
      if (moves[event.key]) { event.preventDefault(); event.stopPropagation(); moves[event.key](); }
    });
    frame.addEventListener("blur", hush);
    draw();
  }

  // Lines and what they decide

  for (const row of all("tr[data-line]")) {
    const line = document.getElementById(row.dataset.line);
    const light = on => { row.classList.toggle("lit", on); if (line) line.classList.toggle("lit", on); };
    row.addEventListener("pointerenter", () => light(true));
    row.addEventListener("pointerleave", () => light(false));
    row.addEventListener("focusin", () => light(true));
    row.addEventListener("focusout", () => light(false));
    if (line) {
      line.addEventListener("pointerenter", () => row.classList.add("lit"));
      line.addEventListener("pointerleave", () => row.classList.remove("lit"));
    }
  }
  const opened = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const around = target && target.closest("details");
    if (around && !around.open) { around.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", opened);
  opened();
  addEventListener("beforeprint", () => { for (const each of all("details")) each.open = true; });

  // Keys

  const theme = () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  };
  const help = () => {
    const box = one("#help");
    box.hidden = !box.hidden;
    one("#keys").setAttribute("aria-expanded", !box.hidden);
  };
  one("#theme").addEventListener("click", theme);
  one("#keys").addEventListener("click", help);
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input")) return;
    const sections = all("main > section");
    if (event.key === "t") theme();
    else if (event.key === "?") help();
    else if (event.key === "r") { event.preventDefault(); input.focus(); input.select(); }
    else if (event.key === "Escape") { hush(); if (locked >= 0) { locked = -1; show(); } pick(picked, false); }
    else if (/^[1-9]$/.test(event.key) && sections[event.key - 1]) {
      const section = sections[event.key - 1];
      section.scrollIntoView();
      section.focus({ preventScroll: true });
    }
  });
  pick(0, false);
})();
