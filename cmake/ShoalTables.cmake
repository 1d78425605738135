# Tables of rows that the build writes: const arrays of pointers, NULL at the end. A folder of the core declares a table with
# its own rows; a folder of the outer ring that is switched on adds rows to it.
#
# The libraries have one copy of each table, with all rows. A test has the rows of the folders that it links.

# shoal_write_table(TARGET TABLE ROW...): an object library with the table.
function(shoal_write_table target table)
  get_property(header GLOBAL PROPERTY SHOAL_${table}_HEADER)
  get_property(type GLOBAL PROPERTY SHOAL_${table}_TYPE)
  set(declarations "")
  set(rows "")
  foreach(row ${ARGN})
    string(APPEND declarations "extern const ${type} ${row};\n")
    string(APPEND rows "&${row}, ")
  endforeach()
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/tables/${target}.c
       CONTENT "#include \"${header}\"\n\n${declarations}const ${type} *const ${table}[] = {${rows}NULL};\n")
  add_library(${target} OBJECT ${CMAKE_BINARY_DIR}/tables/${target}.c)
  set_property(GLOBAL PROPERTY SHOAL_${table}_OBJECTS $<TARGET_OBJECTS:${target}>)
endfunction()

# shoal_table(FOLDER TABLE HEADER TYPE [ROW...]): HEADER declares the table, TYPE is that of its rows.
function(shoal_table folder table header type)
  set_property(GLOBAL PROPERTY SHOAL_${table}_HEADER ${header})
  set_property(GLOBAL PROPERTY SHOAL_${table}_TYPE "${type}")
  set_property(GLOBAL PROPERTY SHOAL_${table}_ROWS ${ARGN})
  set_property(GLOBAL APPEND PROPERTY SHOAL_TABLES ${table})
  shoal_write_table(${table}_core ${table} ${ARGN})
  # For tests of the core: an archive, which the linker does not open where a test has the table with more rows.
  add_library(${table}_core_library STATIC $<TARGET_OBJECTS:${table}_core>)
  set_target_properties(${table}_core_library PROPERTIES LINKER_LANGUAGE C ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/folders)
  target_link_libraries(shoali_${folder} PUBLIC ${table}_core_library)
endfunction()

# shoal_rows(FOLDER TABLE ROW...): rows of a folder of the outer ring. One folder adds to a table.
function(shoal_rows folder table)
  get_property(rows GLOBAL PROPERTY SHOAL_${table}_ROWS)
  shoal_write_table(${table} ${table} ${rows} ${ARGN})
  target_link_libraries(shoali_${folder} INTERFACE $<TARGET_OBJECTS:${table}>)
endfunction()

# shoal_table_objects(VARIABLE): those of all tables, for the libraries.
function(shoal_table_objects variable)
  set(objects)
  get_property(tables GLOBAL PROPERTY SHOAL_TABLES)
  foreach(table ${tables})
    get_property(one GLOBAL PROPERTY SHOAL_${table}_OBJECTS)
    list(APPEND objects ${one})
  endforeach()
  set(${variable} ${objects} PARENT_SCOPE)
endfunction()
