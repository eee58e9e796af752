package control

import (
	"context"
	"log/slog"
)

// who names a cgroup in messages: the name of its container or pod, if that is known, and the path.
func (c *Controller) who(path string) string {
	if name := c.displayName(path); name != "" {
		return name + " (" + path + ")"
	}
	return path
}

// displayName is the name of the container or pod of a cgroup, "" if none is known.
func (c *Controller) displayName(path string) string {
	name := c.name(path)
	if name == "" {
		name = c.seen.names[path]
	}
	if name == path {
		return ""
	}
	return name
}

// namingHandler adds the name of the container or pod to records about a cgroup.
type namingHandler struct {
	slog.Handler
	name func(path string) string
}

func (h namingHandler) Handle(ctx context.Context, record slog.Record) error {
	name := ""
	record.Attrs(func(a slog.Attr) bool {
		if a.Key == "cgroup" {
			name = h.name(a.Value.String())
		}
		return name == ""
	})
	if name != "" {
		record = record.Clone()
		record.AddAttrs(slog.String("name", name))
	}
	return h.Handler.Handle(ctx, record)
}

func (h namingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return namingHandler{h.Handler.WithAttrs(attrs), h.name}
}

func (h namingHandler) WithGroup(group string) slog.Handler {
	return namingHandler{h.Handler.WithGroup(group), h.name}
}
