// Package report prints results as tables for a terminal and as pages in Markdown.
package report
