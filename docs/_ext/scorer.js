// Order of search results: what has exactly the name that is asked for, then pages to begin with; decisions and source code last.
const FACTORS = [
  [/^start\/(comparison|faq)/, 1.2], [/^(start|index)/, 2.4], [/^generated\/tutorials\//, 2.2], [/^how-to\//, 2],
  [/^generated\/reference\//, 1.6], [/^theory\//, 1.2], [/^generated\/gallery\//, 1],
  [/^(project|equations|performance|threats)/, 0.6], [/^(decisions|_modules)\//, 0.2],
];
const ASKED = (new URLSearchParams(location.search).get("q") ?? "").trim().replace(/^(lc\.|learncast[. ])/i, "").toLowerCase();
// The last word of a title such as "learncast.plan" or "The command line > learncast plan".
const named = (page, title) => /^generated\/reference\//.test(page) && title.toLowerCase().split(/[\s.>]+/).at(-1) === ASKED;
var Scorer = {
  score: ([page, title, , , score]) =>
    score * (FACTORS.find(([pattern]) => pattern.test(page)) ?? [0, 1])[1] + (named(page, title) ? 1000 : 0),
  objNameMatch: 11, objPartialMatch: 6, objPrio: {0: 15, 1: 5, 2: -5}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
