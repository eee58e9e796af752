// Package papers relates each table and figure of the four papers to the command that
// repeats it here, and to the figure that this command measured. One table (items)
// generates docs/papers.md and the page that "daybook-bench papers" writes. Figures
// are read from the results pages, so no figure is written by hand.
package papers
