// Package advice checks the predictions of `daybook advise`: it measures a container's load
// beside neighbours on one shared ext4 and with each remedy, and compares what advise predicts
// from the shared ext4 with the measured effect.
package advice
