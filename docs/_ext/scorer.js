// Order of search results: pages to begin with first, records of decisions and source code last.
const FACTORS = [
  [/^(start|index)/, 3], [/^generated\/tutorials\//, 2.2], [/^how-to\//, 2], [/^generated\/reference\//, 1.6],
  [/^theory\//, 1.2], [/^generated\/gallery\//, 1], [/^(project|equations|performance|threats)/, 0.6],
  [/^(decisions|_modules)\//, 0.2],
];
var Scorer = {
  score: ([page, , , , score]) => score * (FACTORS.find(([pattern]) => pattern.test(page)) ?? [0, 1])[1],
  objNameMatch: 11, objPartialMatch: 6, objPrio: {0: 15, 1: 5, 2: -5}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
