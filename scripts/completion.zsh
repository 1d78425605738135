# How zsh completes a word of shoal, from the tables that scripts/completions puts before this text. COMMAND is the key of a table:
# a subcommand, a subcommand and its subject, or a subcommand and a model.
#   _shoal_names  subcommands with their meanings      _shoal_words  COMMAND: subjects or models
#   _shoal_specs  COMMAND: adds the specifications of its flags to `specs`

_shoal() {
    local curcontext=$curcontext state line name subject word
    local -a specs
    local -A opt_args
    _arguments -C '(- *)--help[show the subcommands]' '(- *)--version[show the version]' '1:subcommand:->name' '*::argument:->rest'
    case $state in
    name) _describe -t commands subcommand _shoal_names ;;
    rest)
        name=$words[1]
        curcontext=${curcontext%:*}-$name:
        case $name in
        run)
            _shoal_specs run
            _arguments $specs '(-)1:program:_command_names -e' '*::argument:_normal'
            ;;
        pretrain | plan)
            _shoal_specs $name
            for word in ${(s: :)_shoal_words[$name]}; do
                (( ${words[(Ie)$word]} )) && _shoal_specs "$name $word"
            done
            _arguments $specs "1:model:(${_shoal_words[$name]})" '*:file:_files'
            ;;
        help) _arguments "1:subcommand:(${_shoal_words[help]})" ;;
        *)
            subject=$words[2]
            if [[ -n ${_shoal_words[$name]-} && $CURRENT -gt 2 && " ${_shoal_words[$name]} " == *" $subject "* ]]; then
                shift words
                (( CURRENT-- ))
                _shoal_specs "$name $subject"
                _arguments $specs '*:file:_files'
            elif [[ -n ${_shoal_words[$name]-} ]]; then
                _shoal_specs $name
                _arguments $specs "1:subject:(${_shoal_words[$name]})" '*:file:_files'
            else
                _shoal_specs $name
                _arguments $specs '*:file:_files'
            fi
            ;;
        esac
        ;;
    esac
}
_shoal "$@"
