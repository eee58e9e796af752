// Package crash is a load whose every state is known, and the check of what a
// crash left of it.
//
// A script is a sequence of operations on the names of one directory, made of a
// seed alone: creating, appending, syncing, linking, renaming, removing,
// truncating, attributes. Who runs it tells after each sync how far it came
// ([Run]); after the crash the same seed makes the same sequence again, and
// [Check] looks for the place in it that fits what is there:
//
//   - Names, kinds, permissions, attributes and links are those after some
//     number of operations, exactly. So no operation is half done, and none is
//     there while one before it is missing.
//   - That number is not below the last one that was told.
//   - What was synced is there, byte for byte; of the rest a byte may be
//     missing or zero, and is never another.
//
// It stands on what ext4 keeps in ordered mode: metadata becomes permanent in the
// order of the operations, and a sync of a file that was just changed makes all
// operations before it permanent, too.
package crash
