// The masked sentences: shows the guesses of the chosen step, and how the chance given to the right word grew.
class Sentence {
  constructor(sentence, parent) {
    this.sentence = sentence;
    this.box = html("article", "sentence", undefined, parent);
    const words = html("p", "words", undefined, this.box);
    words.dir = "auto";
    this.marks = new Map();
    sentence.pieces.forEach(([text, space, special], i) => {
      if (space) words.append(" ");
      const place = sentence.masked.indexOf(i);
      if (place >= 0) this.marks.set(place, html("mark", "", undefined, words));
      else html(special ? "small" : "bdi", "", text, words);
    });
    if (sentence.more) words.append(" …");
    this.doubted = html("p", "words doubted", undefined, this.box);
    this.doubted.dir = "auto";
    const fold = html("details", "", undefined, this.box);
    fold.open = this.box === parent.firstChild;
    html("summary", "", "Guesses word by word", fold);
    const places = html("div", "places", undefined, fold);
    this.places = sentence.truth.map((truth, place) => this.place(truth, place, places));
  }

  place(truth, place, parent) {
    const box = html("div", "place", undefined, parent), head = html("p", "", undefined, box);
    html("bdi", "", truth, html("b", "", undefined, head));
    head.append(" ");
    const saw = html("span", "quiet", "shown as ", head);
    html("bdi", "", this.sentence.saw[place], saw);
    const rows = [0, 1, 2, 3, 4].map(() => {
      const row = html("div", "guess", undefined, box), name = html("bdi", "", "", row);
      const bar = svg("svg", { class: "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" }, row);
      return { row, name, fill: svg("rect", { height: 8 }, bar), share: html("span", "", "", row) };
    });
    return { rows, trail: this.trail(place, box) };
  }

  // One small column a step: how high the model rated the word that really stood there. A click goes to that step.
  trail(place, parent) {
    if (Object.keys(this.sentence.at).length < 2) return [];
    const box = html("div", "trail", undefined, parent);
    box.title = "chance given to the right word, step by step";
    return data.samples.steps.map((_, i) => {
      const column = html("i", "", undefined, box), guesses = (this.sentence.at[i] || [])[place] || [];
      const right = guesses.find((guess) => guess[2]);
      column.style.height = right ? Math.max(right[1] * 100, 8) + "%" : "1px";
      column.classList.toggle("right", Boolean(right && guesses[0][2]));
      column.addEventListener("click", () => showStep(i));
      return column;
    });
  }

  show(at) {
    const all = this.sentence.at[at];
    this.box.hidden = !all;
    if (!all) return [0, 0];
    this.judge(this.sentence.doubted[at]);
    let right = 0;
    this.places.forEach(({ rows, trail }, place) => {
      const guesses = all[place], best = guesses[0], mark = this.marks.get(place);
      right += Number(Boolean(best && best[2]));
      this.mark(mark, place, best);
      rows.forEach(({ row, name, fill, share }, i) => {
        row.hidden = i >= guesses.length;
        if (row.hidden) return;
        const [text, chance, hit] = guesses[i];
        row.classList.toggle("right", Boolean(hit));
        name.textContent = name.title = text;
        fill.style.width = Math.max(chance * 100, 0.5) + "px";
        share.textContent = percent(chance);
      });
      trail.forEach((column, i) => column.classList.toggle("now", i === at));
    });
    return [right, this.places.length];
  }

  // RTD: what the encoder takes for a replacement is marked, what it overlooks underlined.
  judge(pieces) {
    this.doubted.hidden = !pieces;
    this.doubted.replaceChildren();
    if (!pieces) return;
    html("small", "", "is it the original?", this.doubted);
    pieces.forEach(([text, space, chance, replaced], i) => {
      if (space || !i) this.doubted.append(" ");
      const doubt = chance >= 0.5, box = doubt ? html("mark", replaced ? "right" : "wrong", undefined, this.doubted)
        : replaced ? html("u", "", undefined, this.doubted) : this.doubted;
      const piece = html("bdi", "", text, box);
      piece.title = percent(chance);
    });
  }

  mark(mark, place, best) {
    if (!mark) return;
    const hit = Boolean(best && best[2]);
    mark.className = hit ? "right" : "wrong";
    mark.replaceChildren();
    if (!hit) {
      html("bdi", "", best ? best[0] : "?", html("s", "", undefined, mark));
      mark.append(" ");
    }
    html("bdi", "", this.sentence.truth[place], mark);
  }
}

const slider = document.getElementById("sample-step");
let sentences = [], timer = 0;

function showStep(at) {
  slider.value = at;
  const counts = sentences.map((sentence) => sentence.show(at));
  const right = counts.reduce((sum, pair) => sum + pair[0], 0), all = counts.reduce((sum, pair) => sum + pair[1], 0);
  document.getElementById("sample-label").textContent = `step ${data.samples.steps[at].toLocaleString("en")} · ${right} of ${all} right`;
}

function play(button) {
  const stop = () => { clearInterval(timer); timer = 0; button.textContent = "Play"; };
  if (timer) return stop();
  button.textContent = "Pause";
  let at = Number(slider.value) < data.samples.steps.length - 1 ? Number(slider.value) : -1;
  timer = setInterval(() => {
    at += 1;
    showStep(at);
    if (at >= data.samples.steps.length - 1) stop();
  }, 550);
}

if (slider) {
  const box = document.getElementById("sentences");
  box.replaceChildren();
  sentences = data.samples.sentences.map((sentence) => new Sentence(sentence, box));
  slider.addEventListener("input", () => showStep(Number(slider.value)));
  listen("play", "click", play);
  showStep(data.samples.steps.length - 1);
}
