// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/kernels"
)

// Version is set by the release build; a build from a checkout says so.
var Version = "0.1.0-dev"

// ownsInterrupt marks a verb that handles interrupts itself.
const ownsInterrupt = "owns-interrupt"

// Main runs met and gives its exit status.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills
	env, err := readEnvironment()
	if err == nil {
		root := newRoot(env)
		root.SetArgs(args)
		root.SetIn(stdin)
		root.SetOut(stdout)
		root.SetErr(stderr)
		if err = refuseSwitchValues(root, args); err == nil {
			err = root.ExecuteContext(ctx)
		}
	}
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "met:", told(err))
	return exitStatus(err)
}

// told is the text of an error; a fault of ours tells its causes too, the stack of a panic among them.
func told(err error) string {
	if e, ours := diag.As(err); ours && e.Code == diag.Internal {
		return e.Detail()
	}
	return err.Error()
}

// exitStatus is diag's; what cobra finds wrong with a command line is the user's.
func exitStatus(err error) int {
	if _, ours := diag.As(err); ours {
		return diag.ExitStatus(err)
	}
	return diag.ExitStatus(diag.Errorf(diag.Invalid, "%w", err))
}

func newRoot(env environment) *cobra.Command {
	root := &cobra.Command{
		Use:           "met",
		Short:         "Serve large language models over OpenAI-compatible HTTP",
		SilenceErrors: true,
		SilenceUsage:  true,
		// An interrupt ends every verb but those that use it themselves.
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			if cmd.Annotations[ownsInterrupt] == "" {
				ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
				context.AfterFunc(ctx, stop)
				cmd.SetContext(ctx)
			}
		},
		Args: cobra.ArbitraryArgs, RunE: group,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Version:           Version,
	}
	root.SetVersionTemplate("met {{.Version}}\n")
	// A verb that has verbs runs nothing itself: its usage is one line.
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}", 1))
	root.SetHelpCommand(newHelpCmd())
	root.SetFlagErrorFunc(suggestFlag)
	root.AddCommand(newServeCmd(env), newChatCmd(env), newListCmd(env), newDoctorCmd(env), newCircuitCmd(env), newKernelsCmd(), newEvalCmd(env), newBenchmarkCmd(env), newVersionCmd())
	countArguments(root)
	return root
}

// countArguments makes every verb that is given too few or too many arguments say which it takes, where cobra only counts.
func countArguments(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err != nil {
				_, takes, _ := strings.Cut(cmd.Use, " ")
				err = diag.Errorf(diag.Invalid, "%q takes %s; given: %s", cmd.CommandPath(), cmp.Or(takes, "no arguments"), plural(len(args), "argument"))
			}
			return err
		}
	}
	for _, c := range cmd.Commands() {
		countArguments(c)
	}
}

// group is what a verb that only has verbs of its own does: help, or a refusal of one that it does not have.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return unknownVerb(cmd, args[0])
}

// unknownVerb names the verbs that are meant, if some are near.
func unknownVerb(cmd *cobra.Command, word string) error {
	message := fmt.Sprintf("unknown command %q for %q", word, cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(word); len(near) > 0 {
		message += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return diag.Errorf(diag.Invalid, "%s", message)
}

// newHelpCmd is cobra's, but for the status of a verb that is not there.
func newHelpCmd() *cobra.Command {
	return &cobra.Command{
		Use: "help [command]", Short: "Help about any command",
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Root().Find(args)
			switch {
			case err != nil:
				return err
			case len(rest) > 0:
				return unknownVerb(of, rest[0])
			}
			of.InitDefaultHelpFlag()
			of.InitDefaultVersionFlag()
			return of.Help()
		},
	}
}

func newVersionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version and the hardware that this binary has kernels for", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hardware, err := carriedHardware(kernels.FS)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "met %s\nkernels: %s\n", Version, hardware)
			return err
		},
	}
}

// refuseSwitchValues finds --switch=value for a flag that takes none.
func refuseSwitchValues(root *cobra.Command, args []string) error {
	cmd, rest, err := root.Find(args)
	if err != nil {
		return nil // cobra says it, with suggestions
	}
	for _, a := range rest {
		if a == "--" {
			break
		}
		name, _, hasValue := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		if !strings.HasPrefix(a, "--") || !hasValue {
			continue
		}
		if f := cmd.Flags().Lookup(name); f != nil && f.Value.Type() == "bool" {
			return diag.Errorf(diag.Invalid, "--%s is a switch: it takes no value; leave it out to turn it off", name).For(name)
		}
	}
	return nil
}

// flagTypes says what values flags of a type take.
var flagTypes = map[string]string{"int": "a whole number", "int64": "a whole number", "float64": "a number", "duration": "a duration, as 30s or 2m",
	"intSlice": "whole numbers, separated by commas"}

// suggestFlag says what a flag's value should be, and adds the nearest known flag to cobra's complaint about an unknown one.
func suggestFlag(cmd *cobra.Command, err error) error {
	var wrong *pflag.InvalidValueError
	if errors.As(err, &wrong) {
		if f := wrong.GetFlag(); flagTypes[f.Value.Type()] != "" {
			return diag.Errorf(diag.Invalid, "--%s %s: want %s", f.Name, wrong.GetValue(), flagTypes[f.Value.Type()]).For(f.Name)
		}
	}
	var empty *pflag.ValueRequiredError
	if errors.As(err, &empty) {
		return diag.Errorf(diag.Invalid, "--%s needs a value", empty.GetFlag().Name).For(empty.GetFlag().Name)
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return diag.Errorf(diag.Invalid, "%w", err)
	}
	best, distance := "", 4
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if d := editDistance(unknown.GetSpecifiedName(), f.Name); d < distance {
			best, distance = f.Name, d
		}
	})
	if best != "" {
		return diag.Errorf(diag.Invalid, "%w; did you mean --%s?", err, best)
	}
	return diag.Errorf(diag.Invalid, "%w; %s --help lists the flags", err, cmd.CommandPath())
}

// editDistance is Levenshtein's.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
