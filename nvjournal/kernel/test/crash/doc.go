// Package crash is a load whose states are all known, and the check of what is left
// of it after a crash.
//
// A script is a sequence of operations on the names of one directory: creating,
// appending, syncing, linking, renaming, removing, truncating, attributes. It depends
// only on a seed. Its runner reports after each sync how many operations are permanent
// ([Run]). After the crash the same seed makes the same sequence again, and [Check]
// looks for the place in it that matches the directory:
//
//   - Names, kinds, permissions, attributes and links are exactly those after some
//     number of operations. So no operation is half done, and none exists while one
//     before it is missing.
//   - That number is not below the last one that was reported.
//   - What was synced exists, byte for byte. Another byte may be missing or zero, and
//     never has another value.
//
// The package relies on properties of ext4 in ordered mode: metadata becomes permanent
// in the order of the operations, and a sync of a file that was just changed makes all
// operations before it permanent, too.
package crash
