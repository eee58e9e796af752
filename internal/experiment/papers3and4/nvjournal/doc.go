// Package nvjournal measures the journal of papers 3 and 4 without a file system; none of
// their figures shows that. It holds updates, commits and recovery against other engines.
package nvjournal
