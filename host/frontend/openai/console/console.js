// The tabs. Only the view that is shown asks the server for anything.
import { startLoad } from "./load.js";
import { startModels } from "./models.js";
import { startPlayground } from "./playground.js";
import { startRequests } from "./requests.js";

const kSecond = 1000;

const tabs = [...document.querySelectorAll('[role="tab"]')];
const views = {
  playground: startPlayground(),
  models: startModels(),
  load: startLoad(),
  requests: startRequests(),
};

let shown = "playground";
let isBusy = false;

function select(tab) {
  for (const each of tabs) {
    const isSelected = each === tab;
    each.setAttribute("aria-selected", String(isSelected));
    each.tabIndex = isSelected ? 0 : -1;
    document.getElementById(each.getAttribute("aria-controls")).hidden = !isSelected;
  }
  shown = tab.getAttribute("aria-controls");
  update();
}

for (const [index, tab] of tabs.entries()) {
  tab.addEventListener("click", () => select(tab));
  tab.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: index + 1, ArrowLeft: index - 1 + tabs.length, Home: 0, End: tabs.length - 1 };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const next = tabs[steps[event.key] % tabs.length];
    next.focus();
    select(next);
  });
}

async function update() {
  if (isBusy || document.hidden) return;
  isBusy = true;
  try {
    await views[shown].update();
  } finally {
    isBusy = false;
  }
}

document.getElementById("api-key").addEventListener("change", () => views.playground.reset());
update();
setInterval(update, kSecond);
