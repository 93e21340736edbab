"""Completion for PowerShell, which click has not."""

import os

from click.shell_completion import CompletionItem, ShellComplete, add_completion_class

SOURCE = """\
Register-ArgumentCompleter -Native -CommandName %(prog_name)s -ScriptBlock {
    param($word, $line, $cursor)
    $env:%(complete_var)s = "powershell_complete"
    $env:COMP_WORDS = $line.ToString()
    $env:COMP_WORD = $word
    %(prog_name)s | ForEach-Object {
        $kind, $value, $help = $_ -split "`t", 3
        if ($kind -eq "file") {
            Get-ChildItem -Path "$value*" | ForEach-Object {
                $path = Resolve-Path -Relative -LiteralPath $_.FullName
                [System.Management.Automation.CompletionResult]::new($path, $_.Name, "ProviderItem", $_.Name)
            }
        } else {
            [System.Management.Automation.CompletionResult]::new($value, $value, "ParameterValue", $help)
        }
    }
    Remove-Item Env:%(complete_var)s, Env:COMP_WORDS, Env:COMP_WORD
}
"""


@add_completion_class
class PowerShellComplete(ShellComplete):
    """A line for each completion: its kind, the text, and what it is for."""

    name = "powershell"
    source_template = SOURCE

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one that is typed, and that one."""
        from click.shell_completion import split_arg_string

        words, word = split_arg_string(os.environ["COMP_WORDS"]), os.environ.get("COMP_WORD", "")
        return words[1:-1] if word else words[1:], word

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type}\t{item.value}\t{item.help or item.value}"
