// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"slices"
	"testing"
	"testing/fstest"
)

func TestProcessorsByTheDevice(t *testing.T) {
	_, d := openFake(t) // at 0001:1b:02
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	const node, cpus = "bus/pci/devices/0001:1b:02.0/numa_node", "devices/system/node/node1/cpulist"
	for _, c := range []struct {
		sys  fstest.MapFS
		want []int
	}{
		{fstest.MapFS{node: file("1\n"), cpus: file("2-4,9,11-12\n")}, []int{2, 3, 4, 9, 11, 12}},
		{fstest.MapFS{node: file("-1\n"), cpus: file("0-3\n")}, nil}, // one memory
		{fstest.MapFS{node: file("1\n")}, nil},
		{fstest.MapFS{cpus: file("0-3\n")}, nil},
		{fstest.MapFS{node: file("one"), cpus: file("0-3\n")}, nil},
		{fstest.MapFS{node: file("1"), cpus: file("3-0")}, nil},
		{fstest.MapFS{node: file("1"), cpus: file("")}, nil},
		{fstest.MapFS{node: file("1"), cpus: file("0-99999999")}, nil},
	} {
		if got := d.processorsBy(c.sys); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.sys, got, c.want)
		}
	}
	d.Near() // of the machine that this runs on
}
