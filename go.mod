module github.com/metrale/metrale

go 1.26
