package volume

import "github.com/daybook-project/daybook/volume/internal/imagefile"

// Progress reports how far a long work has come, in bytes; it may be nil.
type Progress = imagefile.Progress
