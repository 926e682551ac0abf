// The time line on a canvas: for each column of pixels, how its time, or the steps that
// fall on it, split into parts. Cost of drawing grows with what is in sight only.
"use strict";

(() => {
  const MARKS = 26, BARS = 110, AXIS = 22, GAP = 6;
  const HEIGHT = MARKS + GAP + BARS + AXIS;
  const byEnd = d3.bisector((c) => c.ends).left;

  // `chosen(cut)` is called where the reader picks a cut.
  page.timeline = (ledger, chosen) => {
    const canvas = page.h("canvas", {
      class: "timeline", tabindex: 0, role: "img", height: HEIGHT,
      "aria-label": "Time line of cuts. Arrow keys go from cut to cut, plus and minus " +
        "zoom, 0 shows all.",
    });
    const line = { canvas, mode: "time", hidden: new Set(), chosen: null, transform:
      d3.zoomIdentity };
    const steps = stepsOf(ledger);
    const zoom = d3.zoom().scaleExtent([1, 1e6])
      .filter((event) => !event.button && (event.type !== "wheel" || event.ctrlKey
        || event.shiftKey || document.activeElement === canvas))
      .on("zoom", (event) => { line.transform = event.transform; line.draw(); });
    d3.select(canvas).call(zoom).on("dblclick.zoom", null);

    line.domain = () => line.mode === "time"
      ? [0, Math.max(ledger.wall, d3.max(ledger.cuts, (c) => c.ends) || 0)]
      : [0, Math.max(steps.length, 1)];
    line.scale = () => line.transform.rescaleX(
      d3.scaleLinear(line.domain(), [0, canvas.clientWidth || 1]));
    line.place = (cut) => line.mode === "time" ? cut.at
      : steps.findIndex((s) => s.step === cut.step) + 0.5;
    line.draw = () => draw(line, ledger, steps);
    line.zoomBy = (k) => d3.select(canvas).call(zoom.scaleBy, k);
    line.all = () => d3.select(canvas).call(zoom.transform, d3.zoomIdentity);
    line.setMode = (mode) => { line.mode = mode; line.all(); line.draw(); };
    line.choose = (cut) => {
      if (!cut) return;
      line.chosen = cut;
      const x = line.scale()(line.place(cut));
      if (x < 0 || x > canvas.clientWidth) {
        d3.select(canvas).call(zoom.translateTo, x0(line, cut), 0);
      }
      line.draw();
      chosen(cut);
    };
    line.next = (by) => {
      const at = line.chosen ? line.chosen.index + by : by > 0 ? 0 : -1;
      line.choose(ledger.cuts.at(Math.max(0, Math.min(at, ledger.cuts.length - 1))));
    };
    line.cutAt = (x) => cutAt(line, ledger, steps, x);
    listen(line, zoom);
    return line;
  };

  function x0(line, cut) {
    return d3.scaleLinear(line.domain(), [0, line.canvas.clientWidth])(line.place(cut));
  }

  function listen(line, zoom) {
    const { canvas } = line;
    canvas.addEventListener("click", (event) => {
      line.choose(line.cutAt(event.offsetX));
    });
    canvas.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (by) line.next(by * (event.shiftKey ? 100 : 1));
      else if (event.key === "+" || event.key === "=") line.zoomBy(2);
      else if (event.key === "-") line.zoomBy(0.5);
      else if (event.key === "0") line.all();
      else return;
      event.preventDefault();
    });
    new ResizeObserver(() => {
      const size = [canvas.clientWidth, HEIGHT];
      zoom.extent([[0, 0], size]).translateExtent([[0, 0], size]);
      line.draw();
    }).observe(canvas);
  }

  // Cuts by step; what stands before the first step is step 0.
  function stepsOf(ledger) {
    return [...d3.group(ledger.cuts, (c) => c.step)].map(([step, cuts]) => {
      const took = page.parts.map(() => 0);
      for (const cut of cuts) {
        for (const [part, from, to] of cut.stretches) took[part] += to - from;
      }
      return { step, cuts, took };
    });
  }

  function cutAt(line, ledger, steps, x) {
    const scale = line.scale();
    if (line.mode === "steps") {
      const i = Math.floor(scale.invert(x));
      const step = steps[Math.max(0, Math.min(i, steps.length - 1))];
      return step && step.cuts.at(-1);
    }
    const at = scale.invert(x);
    const shown = ledger.cuts.filter((c) => !line.hidden.has(c.cause));
    const i = d3.bisector((c) => c.at).center(shown, at);
    return shown[i];
  }

  function draw(line, ledger, steps) {
    const { canvas } = line;
    const width = canvas.clientWidth;
    if (!width) return;
    const dots = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * dots);
    canvas.height = Math.round(HEIGHT * dots);
    const context = canvas.getContext("2d");
    context.scale(dots, dots);
    const paint = painter(canvas);
    const scale = line.scale();
    const whole = d3.sort(steps, (s) => d3.sum(s.took)).map((s) => d3.sum(s.took));
    const top = 2 * (d3.quantileSorted(whole, 0.9) || 1);
    const sums = line.mode === "time" ? timeColumns(ledger.cuts, scale, width)
      : stepColumns(steps, scale, width, top);
    columns(context, width, sums, paint);
    marks(context, line, ledger, steps, scale, width, paint);
    const label = line.mode === "time" ? (at) => `${+at.toPrecision(9)} s`
      : (at) => steps[at] ? `step ${page.count(steps[at].step)}` : "";
    axis(context, scale, width, label, paint);
    if (line.mode === "steps") {
      context.fillText(`↑ ${page.seconds(top)} or more`, 6, MARKS + GAP + 18);
    }
  }

  // CSS colours by name, looked up once a drawing.
  function painter(canvas) {
    const style = getComputedStyle(canvas), found = new Map();
    return (colour) => {
      if (!found.has(colour)) {
        const name = /^var\((.*)\)$/.exec(colour);
        found.set(colour, name ? style.getPropertyValue(name[1]).trim() : colour);
      }
      return found.get(colour);
    };
  }

  // Each column's share of each part, of the time that it stands for.
  function timeColumns(cuts, scale, width) {
    const sums = page.parts.map(() => new Float64Array(width + 1));
    const [from, to] = [scale.invert(0), scale.invert(width)];
    for (let i = byEnd(cuts, from); i < cuts.length && cuts[i].begins < to; i += 1) {
      for (const [part, start, end] of cuts[i].stretches) {
        spread(sums[part], scale(start), scale(end), width);
      }
    }
    return sums;
  }

  function spread(sum, start, end, width) {
    const last = Math.min(end, width);
    for (let x = Math.max(start, 0); x < last; x = Math.floor(x) + 1) {
      sum[Math.floor(x)] += Math.min(last, Math.floor(x) + 1) - x;
    }
  }

  // Each column's dearest step, in seconds, cut off where most steps would vanish.
  function stepColumns(steps, scale, width, top) {
    const sums = page.parts.map(() => new Float64Array(width + 1));
    const per = scale(1) - scale(0);
    const high = new Float64Array(width + 1);
    const first = Math.max(0, Math.floor(scale.invert(0)));
    for (let i = first; i < steps.length && scale(i) < width; i += 1) {
      const took = d3.sum(steps[i].took);
      const wide = per > 4 ? per - 1 : per;
      for (let x = Math.max(0, Math.floor(scale(i)));
        x < Math.min(width, Math.max(scale(i) + wide, Math.floor(scale(i)) + 1)); x += 1) {
        if (took <= high[x]) continue;
        high[x] = took;
        steps[i].took.forEach((s, part) => { sums[part][x] = s / Math.max(top, took); });
      }
    }
    return sums;
  }

  function columns(context, width, sums, paint) {
    const bottom = MARKS + GAP + BARS;
    context.fillStyle = paint("var(--track)");
    context.fillRect(0, bottom - BARS, width, BARS);
    const level = new Float64Array(width + 1);
    page.parts.forEach((part, i) => {
      context.fillStyle = paint(part.colour);
      for (let x = 0; x < width; x += 1) {
        const tall = Math.min(sums[i][x], 1 - level[x]) * BARS;
        if (tall <= 0) continue;
        context.fillRect(x, bottom - level[x] * BARS - tall, 1.02, tall);
        level[x] += tall / BARS;
      }
    });
  }

  function marks(context, line, ledger, steps, scale, width, paint) {
    const drawn = new Map();  // of a column of pixels, cuts by cause
    const place = new Map(steps.map((s, i) => [s.step, i + 0.5]));
    for (const cut of ledger.cuts) {
      const x = scale(line.mode === "time" ? cut.at : place.get(cut.step));
      if (x < 0 || x > width || line.hidden.has(cut.cause)) continue;
      const column = Math.round(x);
      if (!drawn.has(column)) drawn.set(column, new Map());
      const causes = drawn.get(column);
      causes.set(cut.cause, (causes.get(cut.cause) || 0) + 1);
    }
    for (const [x, causes] of drawn) {
      const whole = d3.sum(causes.values());
      const wide = drawn.has(x + 1) || drawn.has(x - 1) ? 1 : 2;
      let y = MARKS;
      for (const { name, colour } of ledger.causes) {
        const tall = ((causes.get(name) || 0) / whole) * (MARKS - 6);
        if (!tall) continue;
        context.fillStyle = paint(colour);
        context.fillRect(wide === 1 ? x : x - 1, y - tall, wide, tall);
        y -= tall;
      }
    }
    if (!line.chosen) return;
    const x = scale(line.mode === "time" ? line.chosen.at : place.get(line.chosen.step));
    context.strokeStyle = paint("var(--text)");
    context.lineWidth = 1.5;
    context.strokeRect(x - 4, 2, 8, MARKS);
    context.beginPath();
    context.moveTo(x, MARKS + 2);
    context.lineTo(x, HEIGHT - AXIS);
    context.stroke();
  }

  function axis(context, scale, width, label, paint) {
    context.fillStyle = paint("var(--dim)");
    context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    context.textBaseline = "bottom";
    for (const tick of scale.ticks(Math.max(2, width / 110))) {
      const x = scale(tick);
      context.fillRect(x, HEIGHT - AXIS, 1, 5);
      const text = label(tick);
      const half = context.measureText(text).width / 2;
      context.fillText(text, Math.max(0, Math.min(x - half, width - 2 * half)), HEIGHT);
    }
  }
})();
