// Plots of many points, drawn by uPlot from the data of their page, and arrow keys between the links of a plot.
(() => {
  "use strict";
  const FIRST_CODE = 48; // the code of a knob's first choice, as points.py writes it
  const plots = new Set();

  const probe = () => document.getElementById("plot-probe") ??
    document.body.appendChild(Object.assign(document.createElement("span"), { id: "plot-probe", hidden: true }));

  // A custom property as the canvas needs it: `rgb(1, 2, 3)`, or with an opacity.
  const colour = (name, opacity = 1) => {
    const element = probe();
    element.style.color = `var(--${name})`;
    const found = getComputedStyle(element).color;
    return opacity === 1 ? found : found.replace(/^rgb\((.*)\)$/, `rgba($1, ${opacity})`);
  };

  const short = (value) => value >= 1000 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(3));
  // The values of an axis, with as many decimals as they need to differ.
  const texts = (ticks) => {
    let found = ticks.map(short);
    for (let decimals = 1; decimals < 7 && new Set(found).size < new Set(ticks).size; decimals++)
      found = ticks.map((tick) => tick.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals }));
    return found;
  };
  const make = (name, css, text) => {
    const element = document.createElement(name);
    if (css) element.className = css;
    if (text) element.textContent = text;
    return element;
  };

  const linearTicks = (low, high, most) => {
    const rough = (high - low) / most || 1;
    const size = 10 ** Math.floor(Math.log10(rough));
    const step = size * [1, 2, 5, 10].find((factor) => factor * size >= rough);
    const ticks = [];
    for (let place = Math.ceil(low / step); place * step <= high; place++) ticks.push(place * step);
    return ticks;
  };
  const logTicks = (low, high, most) => {
    if (high / low < 4) return linearTicks(low, high, most);
    for (const factors of [[1, 2, 5], [1, 3], [1]]) {
      const ticks = [];
      for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
        for (const factor of factors) {
          const tick = factor * 10 ** power;
          if (tick >= low && tick <= high) ticks.push(tick);
        }
      if (ticks.length <= most) return ticks;
    }
    return linearTicks(low, high, most);
  };

  // The columns sorted by what the horizontal axis shows: the given values, the rank, or the choices of a knob.
  const columns = (data, knob) => {
    const count = data.ys[0].length;
    const xs = knob
      ? Array.from(knob[2], (code, place) => code.charCodeAt(0) - FIRST_CODE + ((place * 0.618034) % 1 - 0.5) * 0.64)
      : data.xs ?? Array.from({ length: count }, (_, place) => place + 1);
    const order = Array.from(xs.keys()).sort((one, other) => xs[one] - xs[other]);
    return { order, values: [xs, ...data.ys].map((column) => order.map((place) => column[place])) };
  };

  const label = (data, place) => {
    const mark = data.marks?.[place] ? ` (${data.marks[place]})` : "";
    if (data.labels) return data.labels[place];
    return (data.knobs ?? []).map(([name, choices, codes]) => `${name}=${choices[codes.charCodeAt(place) - FIRST_CODE]}`).join("  ") + mark;
  };

  // The point nearest to the cursor: its series and its index, or null.
  const nearest = (plot, data) => {
    const { left, top } = plot.cursor;
    let found = null, least = 40 ** 2;
    if (left < 0) return null;
    data.series.forEach(([, kind], place) => {
      if (kind !== "points") return;
      const column = plot.data[place + 1];
      for (let index = 0; index < column.length; index++) {
        if (column[index] == null) continue;
        const across = plot.valToPos(plot.data[0][index], "x") - left;
        const distance = across * across + (plot.valToPos(column[index], "y") - top) ** 2;
        if (distance < least) { least = distance; found = { series: place + 1, index }; }
      }
    });
    return found;
  };

  // Levels with their names, and rings around the marked points.
  const annotate = (plot, data, sorted) => {
    const { ctx, bbox } = plot, ratio = devicePixelRatio;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = colour("muted");
    ctx.font = `${12 * ratio}px ${getComputedStyle(document.body).fontFamily}`;
    ctx.textAlign = "right";
    ctx.lineWidth = ratio;
    const write = (text, x, y) => {
      ctx.save();
      ctx.setLineDash([]);
      ctx.lineWidth = 4 * ratio;
      ctx.lineJoin = "round";
      ctx.strokeStyle = colour("surface");
      ctx.strokeText(text, x, y);
      ctx.fillText(text, x, y);
      ctx.restore();
    };
    ctx.setLineDash([5 * ratio, 4 * ratio]);
    for (const [name, value] of data.levels ?? []) {
      const y = plot.valToPos(value, "y", true);
      if (y < bbox.top || y > bbox.top + bbox.height) continue;
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      write(name, bbox.left + bbox.width - 4 * ratio, y - 5 * ratio);
    }
    ctx.setLineDash([]);
    ctx.textAlign = "left";
    ctx.strokeStyle = ctx.fillStyle = colour("ink");
    sorted.order.forEach((place, index) => {
      if (!data.marks?.[place]) return;
      const x = plot.valToPos(plot.data[0][index], "x", true), y = plot.valToPos(plot.data[1][index], "y", true);
      if (x < bbox.left || x > bbox.left + bbox.width || y < bbox.top || y > bbox.top + bbox.height) return;
      ctx.beginPath();
      ctx.arc(x, y, 6 * ratio, 0, 2 * Math.PI);
      ctx.stroke();
      const isLast = x > bbox.left + bbox.width / 2;
      ctx.textAlign = isLast ? "right" : "left";
      write(data.marks[place], x + (isLast ? -10 : 10) * ratio, y + 4 * ratio);
    });
    ctx.restore();
  };

  const series = ([name, kind, css]) => kind === "steps"
    ? { label: name, stroke: () => colour(css), width: 2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false }, spanGaps: true }
    : { label: name, paths: () => null, points: { show: true, size: 5, width: 0, fill: () => colour(css, 0.55), stroke: () => colour(css, 0.55) } };

  const options = (data, knob, size, sorted, say) => {
    let at = "", hit = null;
    const axis = { stroke: () => colour("muted"), font: `12px ${getComputedStyle(document.body).fontFamily}`, ticks: { show: false } };
    const grid = { stroke: () => colour("line"), width: 1 };
    return {
      ...size,
      legend: { show: false },
      padding: [10, 24, 0, 0],
      scales: {
        x: { time: false, range: (_, low, high) => low === high ? [low - 1, high + 1] : [low - (high - low) / 80, high + (high - low) / 80] },
        y: { distr: 3, range: (_, low, high) => [low / 1.03, high * 1.03] },
      },
      axes: [
        { ...axis, grid: { show: false }, label: knob ? knob[0] : data.x, labelSize: 22, labelFont: axis.font, size: 28,
          splits: (plot, _, low, high) => knob ? knob[1].map((_, place) => place).filter((place) => place >= low && place <= high) : linearTicks(low, high, size.width / 90),
          values: (_, ticks) => knob ? ticks.map((tick) => knob[1][tick]) : texts(ticks) },
        { ...axis, grid, size: 58, splits: (plot, _, low, high) => logTicks(low, high, 7), filter: (_, ticks) => ticks, values: (_, ticks) => texts(ticks) },
      ],
      series: [{}, ...data.series.map(series)],
      cursor: {
        drag: { x: true, y: true, uni: 24, dist: 4 },
        points: { size: 11, width: 2, stroke: () => colour("ink"), fill: "transparent" },
        dataIdx: (plot, place) => {
          const { left, top } = plot.cursor;
          if (at !== `${left} ${top}`) { at = `${left} ${top}`; hit = nearest(plot, data); }
          return hit && (place === 0 || place === hit.series) ? hit.index : null;
        },
      },
      hooks: { draw: [(plot) => annotate(plot, data, sorted())], setCursor: [(plot) => say(plot, nearest(plot, data))] },
    };
  };

  // Keys of a focused plot: arrows step from point to point, plus and minus zoom, Escape shows all.
  const keys = (event, plot, reset) => {
    const { key } = event, { left } = plot.cursor;
    const shown = plot.data[0].map((x, index) => index).filter((index) => plot.data[0][index] >= plot.scales.x.min && plot.data[0][index] <= plot.scales.x.max);
    if (key === "Escape") reset();
    else if (key === "+" || key === "-") {
      const { min, max } = plot.scales.x, middle = left < 0 ? (min + max) / 2 : plot.posToVal(left, "x");
      const factor = key === "+" ? 0.5 : 2;
      plot.setScale("x", { min: middle - (middle - min) * factor, max: middle + (max - middle) * factor });
    } else if (key === "ArrowLeft" || key === "ArrowRight" || key === "Home" || key === "End") {
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[key];
      const last = Math.max(shown.length - 1, 0);
      plot.at = Math.min(Math.max((plot.at ?? (step > 0 ? -1 : last + 1)) + step, 0), last);
      const index = shown[plot.at], column = plot.data.slice(1).find((values) => values[index] != null);
      if (column) plot.setCursor({ left: plot.valToPos(plot.data[0][index], "x"), top: plot.valToPos(column[index], "y") });
    } else return;
    event.preventDefault();
  };

  const draw = (figure, data) => {
    const bar = make("div", "plot-bar"), chart = make("div", "plot-chart"), said = make("output", "plot-said");
    let plot = null, sorted = null;
    chart.tabIndex = 0;
    chart.setAttribute("role", "group");
    chart.setAttribute("aria-label", `${figure.getAttribute("aria-label")}. Arrow keys step through the points, plus and minus zoom, Escape shows all.`);
    const say = (plot, hit) => {
      said.textContent = hit
        ? `${short(plot.data[hit.series][hit.index])}${data.y.endsWith("us") ? " us" : "x"}   ${label(data, sorted.order[hit.index])}`
        : "Point at a mark, or drag to zoom.";
    };
    const reset = () => { plot.at = undefined; plot.setData(plot.data, true); };
    const build = () => {
      const knob = data.knobs?.[(bar.querySelector("select")?.value ?? 0) - 1];
      const size = { width: chart.clientWidth, height: innerWidth < 600 ? 300 : 380 };
      if (plot) { plots.delete(plot); plot.destroy(); }
      sorted = columns(data, knob);
      plot = new uPlot(options(data, knob, size, () => sorted, say), sorted.values, chart);
      plots.add(plot);
      say(plot, null);
    };
    bar.append(make("span", "plot-y", data.y));
    if (data.knobs?.length) {
      const choice = make("select"), name = make("label", "", "Horizontal axis ");
      choice.append(...[data.x, ...data.knobs.map(([knob]) => knob)].map((text, place) => new Option(text, place)));
      choice.addEventListener("change", build);
      name.append(choice);
      bar.append(name);
    }
    const button = make("button", "", "Show all");
    button.type = "button";
    button.addEventListener("click", () => reset());
    bar.append(button);
    figure.querySelector(".plot-fallback").replaceWith(bar, chart, said);
    build();
    chart.addEventListener("keydown", (event) => keys(event, plot, reset));
    chart.addEventListener("dblclick", () => reset());
    new ResizeObserver(() => {
      if (chart.clientWidth && chart.clientWidth !== plot.width) plot.setSize({ width: chart.clientWidth, height: plot.height });
    }).observe(chart);
  };

  const load = async (figure) => {
    figure.dataset.plotReady = "";
    try {
      const reply = await fetch(figure.dataset.plotSrc, { headers: { accept: "application/json" } });
      if (reply.ok) draw(figure, await reply.json());
    } catch (error) {
      console.warn(`the points of a plot could not be loaded: ${error}`); // the plot of the server stays
    }
  };

  // A plot of many links is one stop of the tab key; arrows go to the nearest link in their direction.
  const steps = (map) => {
    const links = Array.from(map.querySelectorAll("a"), (link) => {
      const [x, y] = link.querySelector("path").getAttribute("d").slice(1).split(" ").map(parseFloat);
      return { link, x, y };
    });
    links.forEach(({ link }, place) => link.setAttribute("tabindex", place ? "-1" : "0"));
    map.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      const from = links.find(({ link }) => link === document.activeElement);
      if (!way || !from) return;
      let next = null, least = Infinity;
      for (const to of links) {
        const along = (to.x - from.x) * way[0] + (to.y - from.y) * way[1];
        const aside = Math.abs((to.x - from.x) * way[1]) + Math.abs((to.y - from.y) * way[0]);
        const distance = along + 4 * aside;
        if (along > 1 && distance < least) { least = distance; next = to; }
      }
      if (next) {
        from.link.setAttribute("tabindex", "-1");
        next.link.setAttribute("tabindex", "0");
        next.link.focus();
      }
      event.preventDefault();
    });
  };

  const scan = () => {
    for (const figure of document.querySelectorAll("[data-plot-src]:not([data-plot-ready])")) if (window.uPlot) load(figure);
    for (const map of document.querySelectorAll("svg:is(.plot-heat, .plot-ratios):not([data-plot-ready])")) {
      map.dataset.plotReady = "";
      steps(map);
    }
    for (const plot of plots) if (!plot.root.isConnected) { plots.delete(plot); plot.destroy(); }
  };

  const repaint = () => { for (const plot of plots) plot.redraw(false, true); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  scan();
  new MutationObserver((changes) => {
    if (changes.some(({ addedNodes }) => Array.from(addedNodes).some((node) => node.nodeType === Node.ELEMENT_NODE))) scan();
  }).observe(document.body, { childList: true, subtree: true });
})();
