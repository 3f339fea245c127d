package sidecar

import (
	"context"
	"io"

	"tine/snapshot/export"
	"tine/snapshot/image"
)

// ExportCheckpoint writes a checkpoint's files as a tar stream to w, or into req.Dir.
func (h *Host) ExportCheckpoint(ctx context.Context, ref string, req ExportRequest, w io.Writer) error {
	c, err := h.Resolve(ctx, ref)
	if err != nil {
		return err
	}
	files, err := h.store.Files(c.ID)
	if err != nil {
		return err
	}
	return exportFiles(ctx, files, req, w)
}

func exportFiles(ctx context.Context, files image.Files, req ExportRequest, w io.Writer) error {
	if req.Dir == "" {
		return export.ToTar(ctx, files, w, export.Options{Devices: req.Devices})
	}
	return export.ToDir(ctx, files, req.Dir, export.Options{Devices: req.Devices})
}
