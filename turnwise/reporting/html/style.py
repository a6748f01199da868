"""The style sheet of the pages, as a Python constant, so that it is installed with the package."""

STYLE = """
:root { --ink: #22262b; --grey: #5d646b; --faint: #878e95; --line: #dfe3e6; --wash: #f6f7f8; --accent: #0072b2;
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif;
  --mono: ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", "DejaVu Sans Mono", monospace; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: #fff; color: var(--ink);
  font: 16px/1.55 var(--sans);
  font-variant-numeric: tabular-nums lining-nums; }
main { max-width: 1080px; margin: 0 auto; padding: 56px 32px 96px; }
h1 { font-size: 34px; line-height: 1.2; font-weight: 650; letter-spacing: -0.015em; margin: 0 0 14px;
  text-wrap: balance; }
h2 { font-size: 21px; font-weight: 650; letter-spacing: -0.005em; margin: 0 0 14px; }
h3 { font-size: 16px; font-weight: 650; margin: 0; }
p { margin: 0 0 8px; }
section { margin-top: 60px; }
.eyebrow { font-size: 12.5px; letter-spacing: 0.09em; text-transform: uppercase; color: var(--accent);
  font-weight: 650; }
.lead { font-size: 18px; color: var(--grey); max-width: 46em; }
.fine { font-size: 13.5px; color: var(--grey); margin: 0 0 4px; max-width: 62em; }

table.comparison { border-collapse: collapse; width: 100%; table-layout: fixed; margin: 0 0 14px; font-size: 14.5px; }
.comparison th, .comparison td { padding: 9px 0 9px 14px; vertical-align: top; text-align: right; }
.comparison thead th { vertical-align: bottom; font-size: 13px; line-height: 1.3; font-weight: 600;
  color: var(--grey); border-bottom: 1.5px solid var(--ink); }
.comparison tbody th { text-align: left; padding-left: 0; font-weight: 600; white-space: nowrap; }
.comparison tbody tr:last-child > * { border-bottom: 1px solid var(--line); }
.comparison tbody:last-child tr:last-child > * { border-bottom: 1.5px solid var(--ink); }
.comparison .value { display: block; }
.comparison .bounds { display: block; font-size: 12px; line-height: 1.35; color: var(--grey); white-space: nowrap; }
.comparison .note { display: block; font-size: 12px; font-weight: 400; color: var(--grey); white-space: normal;
  max-width: 16em; }

section > h3 { margin: 34px 0 0; padding-top: 10px; border-top: 1px solid var(--line); }
table.plain { border-collapse: collapse; font-size: 14px; margin: 10px 0; }
.plain th, .plain td { padding: 6px 22px 6px 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
.plain thead th { vertical-align: bottom; line-height: 1.3; font-size: 13px; color: var(--grey);
  border-bottom: 1.5px solid var(--ink); }
.plain tbody th { font-weight: 600; white-space: nowrap; }
.plain .bounds { display: block; font-size: 12px; line-height: 1.35; color: var(--grey); white-space: nowrap; }
.plain.numbers td, .plain.numbers thead th { text-align: right; padding: 6px 0 6px 22px; }
.wide { overflow-x: auto; }

dl { margin: 0; }
dd { margin: 0; }
dl.columns { margin: 16px 0 0; font-size: 13.5px; color: var(--grey); columns: 2; column-gap: 40px; }
dl.columns > div { break-inside: avoid; padding: 2px 0; }
dl.columns dt { display: inline; font-weight: 600; color: var(--ink); }
dl.columns dt::after { content: ": "; }
dl.columns dd { display: inline; }

.before-figures { margin-top: 40px; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(310px, 1fr)); gap: 28px 32px;
  margin-top: 18px; }
.figures.single { display: block; max-width: 860px; }
figure { margin: 0; break-inside: avoid; }
figure svg { display: block; width: 100%; height: auto; }
figure svg text { font-family: var(--sans) !important; }
ul.legend { list-style: none; margin: 12px 0 0; padding: 0; display: flex; flex-wrap: wrap; gap: 4px 26px;
  font-size: 14px; }
.legend li { display: flex; align-items: center; gap: 9px; }
.swatch { flex: none; fill: none; }

.trajectory { margin-top: 26px; border: 1px solid var(--line); border-radius: 8px; overflow: hidden; }
.trajectory > header { padding: 14px 20px 10px; background: var(--wash); border-bottom: 1px solid var(--line); }
.trajectory > header p { margin-top: 2px; overflow-wrap: anywhere; }
.turns { list-style: none; margin: 0; padding: 0; }
.turns > li { display: grid; grid-template-columns: 118px minmax(0, 1fr); gap: 20px; padding: 18px 20px;
  border-bottom: 1px solid var(--line); }
.turns > li:last-child { border-bottom: 0; }
.number { font-size: 13.5px; font-weight: 650; }
.advantage { display: inline-block; border-radius: 6px; padding: 5px 10px 6px; line-height: 1.25;
  border: 1px solid rgba(34, 38, 43, 0.08); }
.advantage span { display: block; font-size: 11.5px; color: var(--grey); }
.advantage b { font-size: 17px; font-weight: 650; }
.passage { display: grid; grid-template-columns: 92px minmax(0, 1fr); gap: 12px; align-items: baseline;
  margin-bottom: 8px; }
.passage:last-child { margin-bottom: 0; }
.passage .label { font-size: 12.5px; color: var(--faint); }
.passage p { margin: 0; overflow-wrap: anywhere; }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; font: 13.5px/1.5 var(--mono); }
.observation pre { color: var(--grey); max-height: 15em; overflow: auto; }
.reply pre { max-height: 15em; overflow: auto; }
.thought pre { font: italic 15px/1.5 Georgia, "Liberation Serif", "Times New Roman", serif; }
.action pre { font-weight: 650; }
.invalid p { font-size: 14px; color: #a34700; }
.trajectory > .passage { grid-template-columns: 222px minmax(0, 1fr); padding: 14px 20px;
  border-top: 1px solid var(--line); margin: 0; gap: 20px; }
.chips { display: flex; flex-wrap: wrap; gap: 6px 8px; align-items: baseline; }
.chip { font-size: 12.5px; line-height: 1.5; border: 1px solid #c3cad0; border-radius: 5px; padding: 1px 8px;
  overflow-wrap: anywhere; }
.chip b { font-weight: 600; }
.chip i { font-style: normal; color: var(--grey); }
.chips .fine { flex-basis: 100%; margin: 0; }
.chip.zero { border-style: dashed; color: var(--grey); }
.chip.zero b { font-weight: 400; }

dl.lineage > div { display: grid; grid-template-columns: 220px minmax(0, 1fr); gap: 20px; padding: 7px 0;
  border-bottom: 1px solid var(--line); font-size: 14px; }
dl.lineage dt { color: var(--grey); overflow-wrap: anywhere; }
dl.lineage dd { font: 13px/1.6 var(--mono); overflow-wrap: anywhere; }
ul.notes { margin: 0; padding-left: 1.1em; font-size: 15px; }
.notes li { padding: 2px 0; }

@media screen and (max-width: 860px) {
  main { padding: 32px 20px 64px; }
  h1 { font-size: 27px; }
  .lead { font-size: 16.5px; }
  section { margin-top: 46px; }
  table.comparison, .comparison tbody, .comparison tr, .comparison td, .comparison th { display: block; }
  .comparison thead { display: none; }
  .comparison tbody tr { display: grid; grid-template-columns: repeat(auto-fill, minmax(120px, 1fr));
    gap: 10px 16px; padding: 14px 0; border-bottom: 1px solid var(--line); }
  .comparison tbody tr > *, .comparison tbody tr:last-child > *, .comparison tbody:last-child tr:last-child > * {
    border: 0; padding: 0;
    text-align: left; }
  .comparison tbody th { grid-column: 1 / -1; font-size: 16px; }
  .comparison td::before { content: attr(data-heading); display: block; font-size: 12px; line-height: 1.3;
    color: var(--grey); }
  table.plain { font-size: 13px; }
  .plain th, .plain td { padding-right: 14px; }
  dl.columns { columns: 1; }
  .figures { grid-template-columns: repeat(auto-fill, minmax(250px, 1fr)); gap: 22px; }
  .turns > li { grid-template-columns: minmax(0, 1fr); gap: 10px; padding: 16px; }
  .rail { display: flex; align-items: center; justify-content: space-between; }
  .rail p { margin: 0; }
  .advantage { display: flex; align-items: baseline; gap: 8px; padding: 3px 10px; }
  .advantage b { font-size: 15px; }
  .passage, .trajectory > .passage { grid-template-columns: minmax(0, 1fr); gap: 2px; }
  dl.lineage > div { grid-template-columns: minmax(0, 1fr); gap: 0; }
}
@media print {
  @page { margin: 15mm; }
  body { font-size: 10.5pt; -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  main { max-width: none; padding: 0; }
  h1 { font-size: 22pt; }
  h2, h3, section > p, ul.legend { break-after: avoid; }
  section { margin-top: 26px; }
  table.comparison { font-size: 8.5pt; }
  .comparison thead th, .comparison .bounds, .comparison .note { font-size: 7pt; }
  .comparison th, .comparison td { padding: 4px 0 4px 6px; }
  .figures { grid-template-columns: repeat(2, 1fr); gap: 14px 20px; }
  .observation pre, .reply pre { max-height: none; overflow: visible; }
  section > h3 { margin-top: 18px; }
  table.plain { font-size: 8.5pt; }
  .plain thead th, .plain .bounds { font-size: 7pt; }
  .plain th, .plain td { padding: 4px 12px 4px 0; }
  .plain tr { break-inside: avoid; }
  .wide { overflow: visible; }
  .trajectory > header { break-after: avoid; }
  .turns > li, dl.lineage > div, .comparison tr { break-inside: avoid; }
}
"""
