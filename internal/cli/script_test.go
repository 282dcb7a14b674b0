// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// update rewrites what the stories compare with cmp.
var update = flag.Bool("update", false, "rewrite golden files")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"met": func() { os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) },
	})
}

// TestScripts tells the stories of testdata/script. Each runs met as a process in a folder of its own, with these commands
// beside testscript's:
//
//	checkpoint FAMILY DIR       unpack a checkpoint of testdata/tiny
//	replace FILE OLD NEW        change the first OLD in a file
//	truncate FILE SIZE          cut a file
//	exits STATUS program …      run a program and demand its exit status; stdout and stderr judge its output
//	picture FILE WIDTH HEIGHT   make a PNG
//	embed FILE PICTURE          change a picture's name in a file to a data: URL of it
//	tensors FILE                print the tensors of a safetensors file: name, element type, shape
//	ids FILE TENSOR VAR         set a variable to the integers of a tensor, separated by commas
//	near FILE TENSOR FILE TENSOR  demand that two tensors agree: floats by the parity ladder's tolerance, integers exactly
//	request STATUS METHOD URL [BODY]  send a request, BODY being a file, and print the answer's body
//	ready URL                   wait until a server is healthy
//	signal NAME                 send SIGTERM or SIGINT to the programs in the background
//	standin VAR                 start a chat server that echoes, and set a variable to its URL
//
// The condition demo holds where the binary carries the demo model. PORT is a port that was free when the story began.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("..", "..", "testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Setup: func(env *testscript.Env) error {
			tiny, err := filepath.Abs(filepath.Join("..", "..", "testdata", "tiny"))
			if err != nil {
				return err
			}
			env.Values[tinyDir{}] = tiny
			port, err := freePort()
			env.Setenv("PORT", port)
			return err
		},
		Condition: func(name string) (bool, error) {
			if name != "demo" {
				return false, fmt.Errorf("no condition %q", name)
			}
			return demoBytes() > 0, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"checkpoint": unpackCheckpoint, "replace": replace, "truncate": truncate, "exits": exits, "picture": picture, "embed": embed,
			"tensors": printTensors, "ids": setIDs, "near": near,
			"request": request, "ready": ready, "signal": sendSignal, "standin": standin,
		},
	})
}
