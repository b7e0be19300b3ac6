// Puts the page together.

readAddress();
heading();
const ofFleet = fleet ? [matrixSection(), fleetMachinesSection()] : [];
const sections = [...ofFleet, ...charts.map(chartSection), tableSection()];
const main = document.getElementById("charts");
main.append(...sections.map((section) => section.node), machinesSection(), runsSection());

function update() {
  for (const section of sections) section.update();
}

filterBar(update);
update();
document.documentElement.dataset.ready = "yes";
