package volume

import "github.com/daybook-project/daybook/volume/internal/imagefile"

// Progress reports the progress of a long operation, in bytes; it may be nil.
type Progress = imagefile.Progress
