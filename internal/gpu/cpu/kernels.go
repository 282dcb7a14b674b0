// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/gpu/cpu/linear"
	"github.com/metrale/metrale/internal/plan"
)

// kernel is an entry of the class's manifest.
type kernel struct {
	// bind takes the arguments and gives what Launch runs. After a fault its result is not used.
	bind func(*args) func()
	// same are pairs of parameters that may be one array.
	same []string
}

// table is all kernels of the class, by entry name.
var table = map[string]kernel{
	"embed":          {embed, nil},
	"linear":         {oneLinear(linear.Store, plan.Out), nil},
	"linear_add":     {oneLinear(linear.Add, plan.InOut), nil},
	"linear_n":       {linearN, nil},
	"linear_glu":     {linearGlu, nil},
	"rms_norm":       {rmsNorm, []string{"x", "y"}},
	"add_rms_norm":   {addRMSNorm, nil},
	"l2_norm":        {l2Norm, []string{"x", "y"}},
	"layer_norm":     {layerNorm, []string{"x", "y"}},
	"gated_norm":     {gatedNorm, []string{"x", "y", "z", "y"}},
	"group_linear":   {groupLinear, nil},
	"group_mul":      {groupMul, nil},
	"glu":            {glu, []string{"g", "y", "u", "y"}},
	"act":            {act, []string{"x", "y"}},
	"gate":           {gate, nil},
	"scale":          {scale, nil},
	"softcap":        {softcap, nil},
	"slice":          {slice, nil},
	"split":          {split, nil},
	"join":           {join, nil},
	"add":            {add, nil},
	"rope_angles":    {ropeAngles, nil},
	"grid_angles":    {gridAngles, nil},
	"grid_embed":     {gridEmbed, nil},
	"rope":           {rope, nil},
	"rope_pair":      {ropePair, nil},
	"position_scale": {positionScale, nil},
	"kv_append":      {kvAppend, nil},
	"attention":      {attention, nil},
	"full_attention": {fullAttention, nil},
	"router":         {router, nil},
	"hash_router":    {hashRouter, nil},
	"experts":        {experts, nil},
	"conv":           {conv, nil},
	"delta_gates":    {deltaGates, nil},
	"delta_rule":     {deltaRule, nil},
	"ssd":            {ssd, nil},
	"compress":       {compress, nil},
	"append_entry":   {appendEntry, nil},
	"repeat":         {repeat, nil},
	"mean":           {mean, nil},
	"mhc_mix":        {mhcMix, nil},
	"mhc_add":        {mhcAdd, nil},
	"mhc_head":       {mhcHead, nil},
	"gather_rows":    {gatherRows, nil},
	"fold_rows":      {foldRows, nil},
	"take_rows":      {takeRows, nil},
	"put_features":   {putFeatures, nil},

	"append":                 {appendRows, nil},
	"latent_attention":       {latentAttention, nil},
	"entry_attention":        {entryAttention, nil},
	"sparse_entry_attention": {sparseEntryAttention, nil},
	"index_entries":          {indexEntries, nil},
	"index":                  {index, nil},
	"sparse_attention":       {sparseAttention, nil},
}

// Bind finds the launch's kernel, checks names, element types, axes, access and overlap of its arguments and its
// attributes, and prepares it. Errors name launch, kernel and argument: diag.Unsupported for a kernel that the class
// lacks, else diag.Internal, since plans come from our compiler.
func (d *Device) Bind(b gpu.Binding) (l gpu.Launch, err error) {
	k, ok := table[b.Kernel]
	if !ok {
		return nil, diag.Errorf(diag.Unsupported, "launch %s: the cpu class has no kernel %q", b.Name, b.Kernel)
	}
	defer func() {
		if v := recover(); v != nil {
			l, err = nil, fault(b.Name, v)
		}
	}()
	a := newArgs(d, &b)
	a.steps()
	run := k.bind(a)
	a.finish(k.same...)
	if a.err != nil {
		return nil, a.err
	}
	bound := &launch{name: b.Name, run: run}
	for _, x := range b.Args {
		bound.buffers = append(bound.buffers, x.Buf.(*buffer))
	}
	return bound, nil
}
