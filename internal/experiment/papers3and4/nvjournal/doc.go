// Package nvjournal measures the journal of papers 3 and 4 without a file system, which
// none of their figures shows. It compares updates, commits and recovery with other
// journals.
package nvjournal
