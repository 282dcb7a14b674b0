// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"os"
	"path/filepath"
)

// environment is what met reads from the process's environment; docs/environment.md describes each variable.
type environment struct {
	hfHome, hfHubCache, hfEndpoint, hfToken, hfOffline string
	cpuPath                                            string // METRALE_CPU_PATH: SIMD path lever
	home, xdgCache                                     string
	noColor                                            bool
}

func readEnvironment() environment {
	return environment{
		hfHome: os.Getenv("HF_HOME"), hfHubCache: os.Getenv("HF_HUB_CACHE"), hfEndpoint: os.Getenv("HF_ENDPOINT"),
		hfToken: os.Getenv("HF_TOKEN"), hfOffline: os.Getenv("HF_HUB_OFFLINE"),
		cpuPath: os.Getenv("METRALE_CPU_PATH"),
		home:    os.Getenv("HOME"), xdgCache: os.Getenv("XDG_CACHE_HOME"),
		noColor: os.Getenv("NO_COLOR") != "",
	}
}

// cacheDir is where Hugging Face's clients keep repositories: HF_HUB_CACHE, else hub below HF_HOME, else below the user's cache.
func (e environment) cacheDir() string {
	if e.hfHubCache != "" {
		return e.hfHubCache
	}
	return filepath.Join(e.hubHome(), "hub")
}

// hubHome is HF_HOME or its default; the token's file lies there.
func (e environment) hubHome() string {
	if e.hfHome != "" {
		return e.hfHome
	}
	cache := e.xdgCache
	if cache == "" {
		cache = filepath.Join(e.home, ".cache")
	}
	return filepath.Join(cache, "huggingface")
}
