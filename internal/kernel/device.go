// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"io/fs"
	"maps"
	"slices"
)

// Device is what is publicly known about a device model.
type Device struct {
	Name      string             `toml:"name"`
	Class     string             `toml:"class"`     // hardware class whose plans it runs
	Memory    int64              `toml:"memory"`    // bytes
	Bandwidth float64            `toml:"bandwidth"` // bytes per second from memory
	Flops     map[string]float64 `toml:"flops"`     // per second and element type of the operands, dense
	Source    string             `toml:"source"`
}

// loadDevices reads DEVICES.toml. A class that the tree does not have yet is allowed: its plans are the cpu class's.
func loadDevices(fsys fs.FS) (map[string]*Device, error) {
	var doc struct {
		Device map[string]*Device `toml:"device"`
	}
	f, err := ReadTOML(fsys, "DEVICES.toml", &doc)
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(doc.Device)) {
		d, at := doc.Device[id], "device."+id
		switch {
		case d.Name == "" || d.Class == "" || d.Source == "":
			return nil, f.Errorf(at, "device %s needs name, class and source", id)
		case d.Memory <= 0 || !(d.Bandwidth > 0) || !(d.Flops["f32"] > 0): // nor NaN
			return nil, f.Errorf(at, "device %s needs memory, bandwidth and flops.f32 above 0", id)
		}
	}
	return doc.Device, nil
}
