// SPDX-License-Identifier: MIT OR Apache-2.0

package chat

import (
	"slices"

	"github.com/metrale/metrale/internal/chat/jinja"
)

// mapTexts applies f to every text of a value, names of fields too. What f leaves alone is shared.
func mapTexts(v Value, f func(string) string) Value {
	out, _ := mapped(v, f)
	return out
}

// mapped says besides whether anything changed.
func mapped(v Value, f func(string) string) (Value, bool) {
	if s, ok := v.Text(); ok {
		if to := f(s); to != s {
			return jinja.String(to), true
		}
		return v, false
	}
	if items, ok := v.Items(); ok {
		shared := true
		for i, item := range items {
			to, changed := mapped(item, f)
			if changed && shared {
				items, shared = slices.Clone(items), false
			}
			if changed {
				items[i] = to
			}
		}
		if shared {
			return v, false
		}
		return jinja.List(items...), true
	}
	if !v.IsDict() {
		return v, false
	}
	var fields []jinja.Field // nil: nothing has changed yet
	for i := range v.Len() {
		field := v.Field(i)
		name := f(field.Name)
		to, changed := mapped(field.Value, f)
		if fields == nil && (changed || name != field.Name) {
			fields = make([]jinja.Field, i, v.Len())
			for k := range i {
				fields[k] = v.Field(k)
			}
		}
		if fields != nil {
			fields = append(fields, jinja.Field{Name: name, Value: to})
		}
	}
	if fields == nil {
		return v, false
	}
	return jinja.Dict(fields...), true
}
