"""The look of a page: one style sheet, light and dark, from 400 pixels of width on."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fcfcfb; --sheet: #f2f2ef; --ink: #1d1e20; --quiet: #5f6368; --line: #dfdfda;
  --accent: #1659a8; --warn: #9a5200; --warn-sheet: #fdf3e3; --good: #1f6f43;
  --train: #2a6db8; --validation: #c4610f; --test: #1b8a6b; --other: #7a5bb5;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #151618; --sheet: #202225; --ink: #e9e9e6; --quiet: #a3a7ad; --line: #34373b;
    --accent: #84b6f2; --warn: #f0b35e; --warn-sheet: #2b2418; --good: #6fcf97;
    --train: #6aa9ec; --validation: #f0924a; --test: #45c39c; --other: #b79af0;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
body {
  margin: 0 auto; padding: 2.5rem clamp(1rem, 4vw, 3rem) 4rem; max-width: 86rem;
  background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums;
}
h1, h2, h3 { line-height: 1.2; font-weight: 620; text-wrap: balance; }
h1 { font-size: 2rem; margin: .1em 0 .1em; letter-spacing: -.015em; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 0 0 .35rem; letter-spacing: -.01em; }
h3 { font-size: 1rem; margin: 1.8rem 0 .7rem; }
p { margin: .3rem 0 .9rem; max-width: 46rem; }
section { margin-top: 3rem; padding-top: 1.6rem; border-top: 1px solid var(--line); }
a { color: var(--accent); text-underline-offset: .15em; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.quiet, .note { color: var(--quiet); }
.note { font-size: .9rem; }
.path { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: .85em; }
.path { overflow-wrap: anywhere; }
.over { font-size: .8rem; color: var(--quiet); letter-spacing: .06em; }
.over { text-transform: uppercase; }

.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(7rem, 1fr)); gap: 0; }
.facts { margin: 1.6rem 0 1rem; border: 1px solid var(--line); border-radius: 10px; }
.facts { overflow: hidden; gap: 1px; }
.facts div { padding: .8rem .85rem; box-shadow: 0 0 0 1px var(--line); }
.facts dt { font-size: .8rem; color: var(--quiet); }
.facts dd { margin: 0; font-size: 1.3rem; font-weight: 560; letter-spacing: -.01em; }
.facts dd { white-space: nowrap; }

nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; padding: 0; }
nav ul { margin: 1rem 0 0; font-size: .95rem; }
nav a { display: inline-block; padding: .2rem 0; }

.findings { list-style: none; padding: 0; margin: .8rem 0 0; display: grid; gap: .5rem; }
.findings li { display: grid; grid-template-columns: 1.5rem 1fr; gap: .35rem; }
.findings li { padding: .55rem .8rem; }
.findings li { border-radius: 8px; background: var(--sheet); max-width: 60rem; }
.findings li.warn { background: var(--warn-sheet); }
.findings .mark { font-weight: 700; color: var(--good); }
.findings .warn .mark { color: var(--warn); }

.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .6rem 0 0; font-size: .93rem; }
th { text-align: left; font-weight: 560; color: var(--quiet); font-size: .82rem; }
th, td { padding: .38rem 1.4rem .38rem 0; vertical-align: top; }
th, td { border-bottom: 1px solid var(--line); }
td:last-child, th:last-child { padding-right: 0; }
tr:last-child > td, tr:last-child > th { border-bottom: 0; }
td.number, th.number { text-align: right; white-space: nowrap; }
td.text { overflow-wrap: anywhere; min-width: 5.4rem; }
td.text:first-child { min-width: 3rem; }
.whole { white-space: nowrap; }
table.wide { width: 100%; }

.key { display: inline-block; width: .7em; height: .7em; border-radius: 2px; }
.key { margin-right: .45em; }
.bar { display: block; height: 5px; border-radius: 2px; min-width: 1px; margin-top: .2rem; }
.of-train { --hue: var(--train); } .of-validation { --hue: var(--validation); }
.of-test { --hue: var(--test); } .of-other { --hue: var(--other); }
.key, .bar { background: var(--hue); }
table.classes th[scope=row] { min-width: 5.4rem; }
table.classes th[scope=row] { font-size: .93rem; color: var(--ink); max-width: 16rem; }
table.classes th[scope=row] { overflow-wrap: anywhere; font-weight: 450; }
table.classes td { width: 26%; }

.sheet { display: grid; gap: 1.1rem .9rem; }
.sheet { grid-template-columns: repeat(auto-fill, minmax(min(9rem, 30%), 1fr)); }
.sheet.small { grid-template-columns: repeat(auto-fill, minmax(6.2rem, 1fr)); }
figure { margin: 0; min-width: 0; }
.frame { aspect-ratio: 1; display: grid; place-items: center; background: var(--sheet); }
.frame { border-radius: 8px; overflow: hidden; }
.picture { position: relative; width: calc(min(1, var(--ratio)) * 100%); }
.picture { aspect-ratio: var(--ratio); }
.picture { min-width: 2px; min-height: 2px; }
.picture img, .picture svg { position: absolute; inset: 0; width: 100%; height: 100%; }
.picture img, .picture svg { display: block; }
.picture rect { fill: none; vector-effect: non-scaling-stroke; }
.missing { padding: .6rem; font-size: .8rem; color: var(--warn); overflow-wrap: anywhere; }
figcaption { margin-top: .4rem; font-size: .88rem; line-height: 1.35; }
figcaption > span { display: block; overflow-wrap: anywhere; }
figcaption > .file { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
figcaption .quiet { font-size: .8rem; }
figcaption .fault { color: var(--warn); white-space: normal; }
.objects { white-space: normal !important; }
.objects span { white-space: nowrap; margin-right: .7em; }
.objects i { display: inline-block; width: .6em; height: .6em; border-radius: 50%; }
.objects i { margin-right: .3em; }

.plots { display: grid; }
.plots { grid-template-columns: repeat(auto-fit, minmax(min(19rem, 100%), 1fr)); }
.plots { gap: 1.6rem 2rem; margin-top: 1rem; }
.plot { max-width: 30rem; }
.plot figcaption { margin: 0 0 .3rem; font-size: .95rem; font-weight: 560; }
.plot svg { width: 100%; height: auto; display: block; overflow: visible; }
.plot text { font-size: 11px; fill: var(--quiet); }
.plot .grid { stroke: var(--line); stroke-width: 1; }
.plot .curve { fill: none; stroke: var(--hue); stroke-width: 1.75; stroke-linejoin: round; }
.plot .area { fill: var(--hue); opacity: .13; }
.plot .dots { fill: var(--hue); fill-opacity: .6; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: .6rem 0 0; }
.legend { font-size: .9rem; }

.groups { display: grid; }
.groups { grid-template-columns: repeat(auto-fill, minmax(min(25rem, 100%), 1fr)); }
.groups { gap: 1rem 1.6rem; margin-top: .8rem; }
.group { display: grid; grid-template-columns: 6rem 1fr; gap: .9rem; min-width: 0; }
.group ul { list-style: none; margin: .2rem 0 0; padding: 0; font-size: .82rem; }
.group ul { color: var(--quiet); }
.group > div { min-width: 0; }
.group li { overflow-wrap: anywhere; }
.warned { color: var(--warn); }
details { margin-top: .8rem; }
summary { cursor: pointer; color: var(--accent); padding: .2rem 0; }
footer { margin-top: 3.5rem; padding-top: 1rem; border-top: 1px solid var(--line); }
footer { color: var(--quiet); font-size: .85rem; }
@media (max-width: 34rem) {
  body { padding-top: 1.4rem; }
  h1 { font-size: 1.6rem; }
  section { margin-top: 2.2rem; }
  th, td { padding-right: .6rem; }
  .group { grid-template-columns: 4.5rem 1fr; }
}
"""
